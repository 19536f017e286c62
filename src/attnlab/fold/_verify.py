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
from attnlab.insert._example import Example, as_call, evaluating
from attnlab.insert._host import attach
from attnlab.insert.receipt import count_parameters, output_change

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
    model: nn.Module,
    surgery: Surgery,
    example: Example | None,
    *,
    fuse: bool,
) -> tuple[dict[str, float], float | None, list[str]]:
    """Fold a float64 copy and compare: errors by place, relative change of the output, notes.

    The comparison is with the network whose gates are held at the constants that were folded.
    """
    if count_parameters(model) > MOST_PARAMETERS:
        return {}, None, ["not checked in float64: the network has too many parameters"]
    reference, folded = copy.deepcopy(model).double(), copy.deepcopy(model).double()
    example = double_example(reference, example)
    hold(reference, surgery.places)
    surgery.perform(folded)
    kept = frozenset(name for name, _ in attachments(folded))
    watched = [place for place in surgery.places if place.folded]
    seen_before, seen = _watch(reference, watched, surgery), _watch(folded, watched, surgery)
    try:
        expected, output = _run(reference, example), _run(folded, example)
    except (RuntimeError, TypeError) as error:
        reason = str(error).splitlines()[0]
        return {}, None, [f"not checked in float64, in which the network does not run: {reason}"]
    errors = {
        place.key: max(map(_error, seen_before[place.key], seen[place.key])) for place in watched
    }
    if fuse:
        remove(folded, keep=kept)
        fuse_network(folded, example)
        output = _run(folded, example)
    _, change = output_change(expected, output)
    _require_exact(watched, errors, change)
    return errors, change, []


def double_example(network: nn.Module, example: Example | None) -> Example:
    """The example, or the one made for `network`, in float64."""
    if example is None:
        arguments, _ = as_call(network, None)
        example = arguments[0]
    return tree_map(_double, example)


def _double(leaf: Any) -> Any:
    return leaf.double() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf


def _run(network: nn.Module, example: Example) -> Any:
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


def _require_exact(places: Sequence[Place], errors: dict[str, float], change: float | None) -> None:
    # Written so that a NaN does not pass.
    wrong = [place for place in places if not errors[place.key] <= EXACT]
    if not wrong and change is not None and change <= EXACT:
        return
    listed = "".join(f"\n  {place.name}: error {errors[place.key]:.1e}." for place in wrong)
    raise FoldError(
        f"The folded network differs from the original in float64 (relative change of the output "
        f"{change}), so it is not handed out. Does the network compute something else on each run, "
        f"or read the gated tensor in a way that one run does not show?{listed}"
    )
