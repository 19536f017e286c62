"""Check a fold where it can be checked: in float64, at every site and at the output."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import replace
from math import inf
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from attnlab._errors import FoldError, InputError
from attnlab.residuals import SeenStep, watchable
from attnlab.residuals.example import Example, call, evaluating
from attnlab.residuals.library import OwnGates
from attnlab.residuals.selection import Call
from attnlab.residuals.watching import watching
from attnlab.surgery.answer import Answer, answer
from attnlab.surgery.change import Change, change_between, largest_change
from attnlab.surgery.double import MOST_PARAMETERS, double_example
from attnlab.surgery.folding._fuse import merge_layers
from attnlab.surgery.folding._places import PlaceKey
from attnlab.surgery.folding._surgery import Surgery
from attnlab.surgery.folding._taps import Tap, Taps
from attnlab.surgery.folding._walk import Scaling
from attnlab.surgery.receipt import count_parameters

EXACT = 1e-8
"""The largest relative error in float64, at any site or at the output, that passes for exact."""


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
    model: nn.Module,
    surgery: Surgery,
    example: Example | None,
    calls: Sequence[Call],
    *,
    fuse: bool,
) -> tuple[dict[PlaceKey, float], float | None, list[str]]:
    """Fold a float64 copy and compare: errors by place, relative change of the output, notes.

    The comparison is with the network whose gates are held at the constants that were folded. A
    network that does not run in float64 is compared in its own precision. Of one that returns a
    set, what `calls` return is compared: what it selects from.
    """
    if count_parameters(model) > MOST_PARAMETERS:
        reason = f"it has more than {MOST_PARAMETERS:,} parameters"
    else:
        exact = copy.deepcopy(model).double()
        try:
            errors, change = _compare(
                exact, surgery, double_example(exact, example), calls, fuse=fuse
            )
        except (RuntimeError, TypeError, InputError) as error:
            cause = str(error.__cause__ or error).splitlines()[0]
            reason = f"it does not run in float64: {cause}"
        else:
            most = EXACT
            notes: list[str] = []
            if not _agree(surgery, errors, change, EXACT):
                most, notes = _resolved(exact, double_example(exact, example))
            _require(surgery, errors, change, most, "float64")
            return errors, change.relative, [*notes, *_selected(change, most, "float64")]
    errors, change = _compare(model, surgery, example, calls, fuse=fuse)
    parameter = next(p for p in model.parameters() if p.is_floating_point())
    precision = str(parameter.dtype).removeprefix("torch.")
    most = min(1e4 * torch.finfo(parameter.dtype).eps, 0.3)
    _require(surgery, errors, change, most, precision)
    notes = [f"checked in {precision} only (to {most:.0e}), because {reason}"]
    return {}, None, [*notes, *_selected(change, most, precision)]


def _agree(surgery: Surgery, errors: Mapping[PlaceKey, float], change: Change, most: float) -> bool:
    """Whether all is within `most`, written so that a NaN is not."""
    within = all(errors[p.key] <= most for p in surgery.places if p.folded)
    return within and change.relative is not None and change.relative <= most


def _resolved(exact: nn.Module, example: Example | None) -> tuple[float, list[str]]:
    """What a float64 copy that casts inside can resolve, and what to say of it: two right results
    differ by the rounding of the coarsest type that it passes."""
    with evaluating(exact), _FloatTypes() as passed:
        call(exact, example)
    coarsest = max(passed.seen, key=lambda dtype: torch.finfo(dtype).eps, default=torch.float64)
    if coarsest == torch.float64:
        return EXACT, []
    most = 100 * torch.finfo(coarsest).eps
    name = str(coarsest).removeprefix("torch.")
    return most, [f"checked to {most:.0e}, because the network casts to {name} inside"]


class _FloatTypes(TorchFunctionMode):
    """Notes the floating types of all tensors that are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[torch.dtype] = set()

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        del types
        output = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(output):
            if isinstance(leaf, Tensor) and leaf.is_floating_point():
                self.seen.add(leaf.dtype)
        return output


def _selected(change: Change, most: float, precision: str) -> list[str]:
    """What to say of a network that selects differently from the same."""
    if change.of_output is None or change.of_output <= most:
        return []
    return [
        f"in {precision} it selects differently from what is the same to {change.relative:.0e}, "
        f"as it does where scores tie"
    ]


def _compare(
    model: nn.Module,
    surgery: Surgery,
    example: Example | None,
    calls: Sequence[Call],
    *,
    fuse: bool,
) -> tuple[dict[PlaceKey, float], Change]:
    folded = copy.deepcopy(model)
    surgery.perform(folded)
    held = {gate.name: Tap(gate.constant) for place in surgery.places for gate in place.folded}
    own = dict(p.gate_of for p in surgery.places if p.folded and p.gate_of is not None)
    _, expected, before = _watched(model, surgery, held, example, calls, own)
    first, again, after = _watched(folded, surgery, {}, example, calls)
    errors = {
        key: max(_error(before.get(at), after.get(at)) for at in compared)
        for key, compared in _compared(surgery).items()
    }
    repeated = change_between(first, again)  # a network may differ from run to run
    if fuse:
        merge_layers(folded, example)
        again = answer(folded, example, calls)
    change = change_between(expected, again)
    if not calls and change.relative is not None and change.of_output is not None:
        # Nothing is selected, so all of the output must be there, and the same each time.
        change = replace(change, relative=max(change.of_output, repeated.of_output or 0.0))
    return errors, change


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
    network: nn.Module,
    surgery: Surgery,
    held: Mapping[str, Tap],
    example: Example | None,
    calls: Sequence[Call],
    own: OwnGates | None = None,
) -> tuple[Answer, Answer, dict[PlaceKey, Tensor]]:
    """The answers of two runs, and what the second showed where it is compared."""
    seen = _Seen(held, {at for compared in _compared(surgery).values() for at in compared})
    with ExitStack() as hooks:
        for at in seen.places:
            if isinstance(at, str):
                module = network.get_submodule(at)
                hooks.enter_context(module.register_forward_hook(seen.behind(at)))
        found = watchable(network, example, own)
        hooks.enter_context(watching(network, seen, found=found))
        first = Answer(found.run.output, found.run.macs)
        return first, answer(network, example, calls), seen.tensors


def _error(before: Tensor | None, after: Tensor | None) -> float:
    """Infinite where there is nothing to compare: what is not known does not pass."""
    if before is None or after is None or before.shape != after.shape:
        return inf
    error, size, _ = largest_change([(before, after)])
    return inf if error is None else error / size if size > 0 else error


def _require(
    surgery: Surgery,
    errors: dict[PlaceKey, float],
    change: Change,
    most: float,
    precision: str,
) -> None:
    # Written so that a NaN does not pass.
    wrong = [p for p in surgery.places if p.folded and not errors[p.key] <= most]
    if not wrong and change.relative is not None and change.relative <= most:
        return
    if change.relative is None:
        raise FoldError(
            f"The folded network cannot be compared with the original in {precision}, so it is not "
            f"handed out: {change.compared}. Pass an example on which it answers: example=..."
        )
    listed = "".join(f"\n  {place.name}: error {errors[place.key]:.1e}." for place in wrong)
    said = f"; {change.compared}" if change.compared else ""
    raise FoldError(
        f"The folded network differs from the original in {precision} (relative change of the "
        f"output {change.relative}{said}), so it is not handed out. Does the network compute "
        f"something else on each run, or read the gated tensor in a way that one run does not "
        f"show?{listed}"
    )
