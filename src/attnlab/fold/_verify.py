"""Check a fold where it can be checked: in float64, at every site and at the output."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import ExitStack
from math import inf, isnan
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from attnlab._errors import FoldError, InputError
from attnlab.fold._fuse import fuse as fuse_network
from attnlab.fold._places import PlaceKey
from attnlab.fold._surgery import Surgery
from attnlab.fold._taps import Tap, Taps
from attnlab.fold._walk import Scaling
from attnlab.insert import SeenStep, watching
from attnlab.insert.receipt import count_parameters, output_change
from attnlab.record.example import Example, as_call, call, evaluating

EXACT = 1e-8
"""The largest relative error in float64, at any site or at the output, that passes for exact."""
MOST_PARAMETERS = 500_000_000
"""Larger networks are not copied to float64."""


class _Seen(Taps):
    """Keeps what passes `places`; gates with a tap are held."""

    def __init__(self, taps: Mapping[str, Tap], places: Set[PlaceKey]) -> None:
        super().__init__(taps)
        self.places = places
        self.tensors: dict[PlaceKey, Tensor] = {}

    def step_seen(self, seen: SeenStep) -> None:
        if seen.step.key in self.places:
            self.tensors[seen.step.key] = seen.branch.detach().clone()

    def behind(self, module: str) -> Callable[..., None]:
        """A hook that keeps the module's output."""

        def hook(_module: nn.Module, _arguments: Any, output: Tensor) -> None:
            self.tensors[module] = output.detach().clone()

        return hook


def check_exact(
    model: nn.Module, surgery: Surgery, example: Example | None, *, fuse: bool
) -> tuple[dict[PlaceKey, float], float | None, list[str]]:
    """Fold a float64 copy and compare: errors by place, relative change of the output, notes.

    The comparison is with the network whose gates are held at the constants that were folded. A
    network that does not run in float64 is compared in its own precision.
    """
    if count_parameters(model) > MOST_PARAMETERS:
        reason = f"it has more than {MOST_PARAMETERS:,} parameters"
    else:
        exact = copy.deepcopy(model).double()
        try:
            errors, change = _compare(exact, surgery, double_example(exact, example), fuse=fuse)
        except (RuntimeError, TypeError, InputError) as error:
            cause = str(error.__cause__ or error).splitlines()[0]
            reason = f"it does not run in float64: {cause}"
        else:
            _require(surgery, errors, change, EXACT, "float64")
            return errors, change, []
    errors, change = _compare(model, surgery, example, fuse=fuse)
    parameter = next(p for p in model.parameters() if p.is_floating_point())
    precision = str(parameter.dtype).removeprefix("torch.")
    most = min(1e4 * torch.finfo(parameter.dtype).eps, 0.3)
    _require(surgery, errors, change, most, precision)
    return {}, None, [f"checked in {precision} only (to {most:.0e}), because {reason}"]


def _compare(
    model: nn.Module, surgery: Surgery, example: Example | None, *, fuse: bool
) -> tuple[dict[PlaceKey, float], float | None]:
    folded = copy.deepcopy(model)
    surgery.perform(folded)
    held = {gate.name: Tap(gate.constant) for place in surgery.places for gate in place.folded}
    _, expected, before = _watched(model, surgery, held, example)
    output, again, after = _watched(folded, surgery, {}, example)
    errors = {
        key: max(_error(before.get(at), after.get(at)) for at in compared)
        for key, compared in _compared(surgery).items()
    }
    repeated = output_change(output, again)[1] or 0.0  # a network may differ from run to run
    if fuse:
        fuse_network(folded, example)
        again = _run(folded, example)
    change = output_change(expected, again)[1]
    return errors, None if change is None else max(change, repeated)


def _compared(surgery: Surgery) -> dict[PlaceKey, Sequence[PlaceKey]]:
    """Where gated and folded network must agree: behind the gates of each place, or behind the
    layers that take its gate on their input."""
    found: dict[PlaceKey, Sequence[PlaceKey]] = {}
    for place in surgery.places:
        scaling = surgery.decided.get(place.key)
        if isinstance(scaling, Scaling):
            found[place.key] = scaling.behind or (place.key,)
    return found


def _watched(
    network: nn.Module, surgery: Surgery, held: Mapping[str, Tap], example: Example | None
) -> tuple[Any, Any, dict[PlaceKey, Tensor]]:
    """The output of two runs, and what the second showed where it is compared."""
    seen = _Seen(held, {at for compared in _compared(surgery).values() for at in compared})
    with ExitStack() as hooks:
        for at in seen.places:
            if isinstance(at, str):
                module = network.get_submodule(at)
                hooks.enter_context(module.register_forward_hook(seen.behind(at)))
        found = hooks.enter_context(watching(network, seen, example))
        return found.run.output, _run(network, example), seen.tensors


def double_example(network: nn.Module, example: Example | None) -> Example:
    """The example, or the one made for `network`, in float64."""
    if example is None:
        arguments, _ = as_call(network, None)
        example = arguments[0]
    return tree_map(_double, example)


def _double(leaf: Any) -> Any:
    return leaf.double() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf


def _run(network: nn.Module, example: Example | None) -> Any:
    with evaluating(network):
        return call(network, example)


def _error(before: Tensor | None, after: Tensor | None) -> float:
    if before is None or after is None:
        return inf
    size = float(before.abs().max())
    error = float((before - after).abs().max())
    return inf if isnan(error) else error / size if size > 0 else error


def _require(
    surgery: Surgery,
    errors: dict[PlaceKey, float],
    change: float | None,
    most: float,
    precision: str,
) -> None:
    # Written so that a NaN does not pass.
    wrong = [p for p in surgery.places if p.folded and not errors[p.key] <= most]
    if not wrong and change is not None and change <= most:
        return
    listed = "".join(f"\n  {place.name}: error {errors[place.key]:.1e}." for place in wrong)
    raise FoldError(
        f"The folded network differs from the original in {precision} (relative change of the "
        f"output {change}), so it is not handed out. Does the network compute something else on "
        f"each run, or read the gated tensor in a way that one run does not show?{listed}"
    )
