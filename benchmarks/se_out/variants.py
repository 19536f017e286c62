"""Other constants than `attnlab.fold` takes, for the table of ablations: written with plain hooks.

All gates of a network are made constant at once. A variant is a rule for the constants (`mean`,
`ls`: least squares, `ls + bias`), whether they are made one after the other (`sequential`: the
branch is that of the network changed so far, what it should give that of the original), and what
becomes of BatchNorm's statistics: kept, `moved` by as much as on the data, `moved in batches` (by
the mean of as much as on every 64 of them: what `attnlab.fold` does), `estimated` anew.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

import torch
from torch import Tensor, nn

from attnlab.residuals import watchable
from benchmarks._common import settings

_DIMS = (0, 2, 3)
_BATCH = 64
"""As many images as `attnlab.fold` runs at once."""


class Variant(NamedTuple):
    """One row of the table."""

    constants: str
    sequential: bool = False
    norms: str = "kept"

    @property
    def label(self) -> str:
        parts = [self.constants, "sequential" if self.sequential else ""]
        parts.append("" if self.norms == "kept" else f"norms {self.norms}")
        return ", ".join(part for part in parts if part)


VARIANTS = [Variant(**about) for about in settings("se_out")["variants"]]


def made_constant(network: nn.Module, images: Tensor, variant: Variant) -> nn.Module:
    """Return a copy of `network` whose gates are constant by `variant`."""
    names = [gate.name for gate in watchable(network, images[:1]).gates]
    changed = copy.deepcopy(network)
    wanted = _seen(network, names, images)
    for name in names:
        branch, gated = wanted[name]
        if variant.sequential:
            branch = _seen(changed, [name], images)[name][0]
        _hold(changed, name, *_fit(branch.double(), gated.double(), variant.constants))
    if variant.norms == "estimated":
        _estimate(changed, images)
    elif variant.norms == "moved":
        _move(changed, network, images)
    elif variant.norms == "moved in batches":
        _move_in_batches(changed, network, images)
    return changed


def answers(network: nn.Module, images: Tensor) -> Tensor:
    """Return what `network` says to `images`."""
    with torch.no_grad():
        return torch.cat([network(part) for part in images.split(250)])


def _seen(
    network: nn.Module, names: Sequence[str], images: Tensor
) -> dict[str, tuple[Tensor, Tensor]]:
    """What goes into each module that multiplies by a gate, and what comes out."""
    found: dict[str, list[tuple[Tensor, Tensor]]] = {name: [] for name in names}
    before = {name: network.get_submodule(name).__dict__.get("forward") for name in names}
    for name in names:
        module = network.get_submodule(name)

        def forward(branch, *rest, _name=name, _inner=module.forward, **options):
            kept = branch.clone()
            gated = _inner(branch, *rest, **options)
            found[_name].append((kept, gated.clone()))
            return gated

        module.__dict__["forward"] = forward
    answers(network, images)
    for name, inner in before.items():
        attributes = network.get_submodule(name).__dict__
        del attributes["forward"]
        if inner is not None:
            attributes["forward"] = inner
    return {
        name: (torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts]))
        for name, parts in found.items()
    }


def _fit(branch: Tensor, gated: Tensor, rule: str) -> tuple[Tensor, Tensor]:
    """Factor and bias of each channel."""
    energy, cross = branch.square().mean(_DIMS), (branch * gated).mean(_DIMS)
    alive = energy > 1e-12
    if rule == "mean":
        each = branch.square().sum((2, 3))
        gates = (branch * gated).sum((2, 3)) / each.clamp_min(1e-30)
        factor = (gates * (each > 1e-20)).sum(0) / (each > 1e-20).sum(0).clamp_min(1)
        return factor, torch.zeros_like(factor)
    if rule == "ls":
        factor = torch.where(alive, cross / energy.clamp_min(1e-12), torch.ones_like(cross))
        return factor, torch.zeros_like(factor)
    mean, target = branch.mean(_DIMS), gated.mean(_DIMS)
    variance = energy - mean.square()
    slope = (cross - mean * target) / variance.clamp_min(1e-12)
    factor = torch.where(variance > 1e-10, slope, torch.zeros_like(mean))
    return factor, target - factor * mean


def _hold(network: nn.Module, name: str, factor: Tensor, bias: Tensor) -> None:
    v, b = (each.float().view(1, -1, 1, 1) for each in (factor, bias))
    network.get_submodule(name).__dict__["forward"] = lambda branch, *_, **__: branch * v + b


def _norms(network: nn.Module) -> list[nn.BatchNorm2d]:
    return [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]


def _estimate(network: nn.Module, images: Tensor) -> None:
    for norm in _norms(network):
        norm.reset_running_stats()
        norm.momentum = None
        norm.train()
    answers(network, images)
    network.eval()


def _moments(
    network: nn.Module, norms: Sequence[nn.BatchNorm2d], images: Tensor
) -> list[tuple[Tensor, Tensor]]:
    """Mean and variance of what each of these norms sees."""
    seen: list[list[tuple[Tensor, Tensor]]] = [[] for _ in norms]
    with ExitStack() as hooks:
        for norm, kept in zip(norms, seen, strict=True):

            def note(_, given, kept=kept):
                values = given[0].double()
                share = len(values) / len(images)
                kept.append((share * values.mean(_DIMS), share * values.square().mean(_DIMS)))

            hooks.enter_context(norm.register_forward_pre_hook(note))
        answers(network, images)
    sums = [(sum(m for m, _ in kept), sum(s for _, s in kept)) for kept in seen]
    return [(mean, square - mean**2) for mean, square in sums]


def _move(changed: nn.Module, original: nn.Module, images: Tensor) -> None:
    """One norm after the other, each on all images."""
    before = _moments(original, _norms(original), images)
    for norm, (mean_before, variance_before) in zip(_norms(changed), before, strict=True):
        ((mean, variance),) = _moments(changed, [norm], images)
        ratio = (variance + norm.eps) / (variance_before + norm.eps)
        norm.running_mean += (mean - mean_before).float()
        norm.running_var = ((norm.running_var + norm.eps) * ratio.float() - norm.eps).clamp_min(0)


def _move_in_batches(changed: nn.Module, original: nn.Module, images: Tensor) -> None:
    """The mean over batches: of the shifts of the means, and of the logarithms of the ratios of the
    variances. Few images that change much then decide less."""
    shifts, ratios = ([torch.zeros_like(n.running_mean) for n in _norms(changed)] for _ in range(2))
    for batch in images.split(_BATCH):
        moved, share = copy.deepcopy(changed), len(batch) / len(images)
        _move(moved, original, batch)
        pairs = zip(_norms(moved), _norms(changed), strict=True)
        for (new, old), shift, ratio in zip(pairs, shifts, ratios, strict=True):
            shift += share * (new.running_mean - old.running_mean)
            ratio += share * ((new.running_var + new.eps) / (old.running_var + old.eps)).log()
    for norm, shift, ratio in zip(_norms(changed), shifts, ratios, strict=True):
        norm.running_mean += shift
        norm.running_var = ((norm.running_var + norm.eps) * ratio.exp() - norm.eps).clamp_min(0)
