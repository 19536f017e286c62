"""Check a fold where it can be checked: in float64, at every site and at the output."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from attnlab.fold._places import Place
from attnlab.insert import Attachment, Site
from attnlab.insert._example import Example, as_call, evaluating
from attnlab.insert._host import attach

MOST_PARAMETERS = 500_000_000
"""Larger networks are not copied to float64."""


class Probe(Attachment):
    """Keeps what passes a site, unchanged."""

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


def watched(network: nn.Module, sites: Sequence[Site]) -> list[Probe]:
    """Put a probe on each of `sites` of `network`, behind the gates that act there."""
    probes = []
    for site in sorted(sites, key=lambda site: site.host != "addition"):
        probe = Probe(site)
        attach(network, probe)
        probes.append(probe)
    by_site = {id(probe.site): probe for probe in probes}
    return [by_site[id(site)] for site in sites]


def in_float64(network: nn.Module) -> nn.Module:
    """A copy of `network` in float64."""
    return copy.deepcopy(network).double()


def run_in_float64(network: nn.Module, example: Example | None) -> Any:
    """The output of a network on the example, both in float64."""
    arguments, keywords = as_call(network, example)
    arguments, keywords = tree_map(_double, (arguments, keywords))
    with evaluating(network):
        return network(*arguments, **keywords)


def _double(leaf: Any) -> Any:
    return leaf.double() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf


def site_errors(
    reference: nn.Module, folded: nn.Module, places: Sequence[Place], example: Example | None
) -> tuple[list[float], Any, Any]:
    """Of each place, the error of the gated branch relative to its largest value; both outputs.

    Both networks are changed: they are left with probes.
    """
    sites = [place.site for place in places]
    expected, found = watched(reference, sites), watched(folded, sites)
    output_expected = run_in_float64(reference, example)
    output_found = run_in_float64(folded, example)
    errors = [_error(a.seen, b.seen) for a, b in zip(expected, found, strict=True)]
    return errors, output_expected, output_found


def _error(expected: Tensor | None, found: Tensor | None) -> float:
    assert expected is not None
    assert found is not None
    size = float(expected.abs().max())
    error = float((expected - found).abs().max())
    return error / size if size > 0 else error
