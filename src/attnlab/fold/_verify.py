"""Check a fold where it can be checked: in float64, at every site and at the output."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from attnlab._errors import FoldError
from attnlab.fold._fuse import fuse as fuse_network
from attnlab.fold._places import Place
from attnlab.fold._surgery import Surgery
from attnlab.fold._taps import hold
from attnlab.fold._walk import Scaling
from attnlab.insert import Attachment, Site, attachments, remove
from attnlab.insert._host import attach
from attnlab.insert.receipt import count_parameters, output_change
from attnlab.record.example import Example, as_call, evaluating

EXACT = 1e-8
"""The largest relative error in float64, at any site or at the output, that passes for exact."""
MOST_PARAMETERS = 500_000_000
"""Larger networks are not copied to float64."""


class Probe(Attachment):
    """Keeps what passes a place, unchanged."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self.seen: Tensor | None = None

    def step_size(self, branch: Tensor, shortcut: Tensor | None) -> Tensor:
        del shortcut
        return torch.ones((), dtype=branch.dtype, device=branch.device)

    def forward(self, branch: Tensor, shortcut: Tensor | None = None) -> Tensor:
        del shortcut
        self.seen = branch.detach().clone()
        return branch


def check_exact(
    model: nn.Module, surgery: Surgery, example: Example | None, *, fuse: bool
) -> tuple[dict[str, float], float | None, list[str]]:
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
        except (RuntimeError, TypeError) as error:
            reason = f"it does not run in float64: {str(error).splitlines()[0]}"
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
) -> tuple[dict[str, float], float | None]:
    reference, folded = copy.deepcopy(model), copy.deepcopy(model)
    hold(reference, surgery.places)
    surgery.perform(folded)
    kept = frozenset(name for name, _ in attachments(folded))
    watched = [place for place in surgery.places if place.folded]
    seen_before, seen = _watch(reference, watched, surgery), _watch(folded, watched, surgery)
    expected, output = _run(reference, example), _run(folded, example)
    errors = {
        place.key: max(map(_error, seen_before[place.key], seen[place.key])) for place in watched
    }
    if fuse:
        remove(folded, keep=kept)
        fuse_network(folded, example)
        output = _run(folded, example)
    return errors, output_change(expected, output)[1]


def double_example(network: nn.Module, example: Example | None) -> Example:
    """The example, or the one made for `network`, in float64."""
    if example is None:
        arguments, _ = as_call(network, None)
        example = arguments[0]
    return tree_map(_double, example)


def _double(leaf: Any) -> Any:
    return leaf.double() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf


def _run(network: nn.Module, example: Example | None) -> Any:
    arguments, keywords = as_call(network, example)
    with evaluating(network):
        return network(*arguments, **keywords)


def _watch(network: nn.Module, places: Sequence[Place], surgery: Surgery) -> dict[str, list[Probe]]:
    """Put probes where gated and folded network must agree: behind the gates of each place, or
    behind the layers that take its gate on their input."""
    probes = {}
    for place in places:
        scaling = surgery.decided[place.key]
        assert isinstance(scaling, Scaling)
        probes[place.key] = [
            Probe(replace(place.site, host="output", module=module)) for module in scaling.behind
        ] or [Probe(place.site)]
    everywhere = [probe for each in probes.values() for probe in each]
    for probe in sorted(everywhere, key=lambda probe: probe.site.host != "addition"):
        attach(network, probe)
    return probes


def _error(before: Probe, after: Probe) -> float:
    assert before.seen is not None
    assert after.seen is not None
    size = float(before.seen.abs().max())
    error = float((before.seen - after.seen).abs().max())
    return error / size if size > 0 else error


def _require(
    surgery: Surgery, errors: dict[str, float], change: float | None, most: float, precision: str
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
