"""The constant that stands best for a gate: least squares of what the gate makes of its branch.

A gate g and a branch x give g x. Of all constants v per channel, v = E[g x²] / E[x²] makes the mean
square of (g - v) x smallest: the mean of the gate in which an image counts by the energy of its
branch. Where a channel has no energy, nothing depends on v, and it is the plain mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.residuals import SeenGate, Watchable
from attnlab.residuals.example import call, evaluating
from attnlab.residuals.padding import MaskArgument, mask_argument
from attnlab.residuals.watching import watching
from attnlab.surgery.folding._halves import Part
from attnlab.surgery.folding._places import Place
from attnlab.surgery.folding._taps import Tap, Taps, tapped, taps_of


@dataclass
class _Energy:
    """Sums over images and places of one gate's branch, by channel."""

    of_branch: Tensor | None = None
    of_gated: Tensor | None = None
    """Of the branch times the gate, times the branch."""
    now: Tensor | None = field(default=None, repr=False)
    """Of the branch that is about to be gated, (rows, channels)."""

    def see(self, gate: Tensor) -> None:
        assert self.now is not None
        rows = gate[:, :, 0].double().cpu().expand_as(self.now)
        self._add(self.now.sum(0), (rows * self.now).sum(0))

    def see_places(self, gate: Tensor, branch: Tensor, weights: Tensor | None) -> None:
        """A gate that differs from place to place, and what it multiplies: (rows, channels, places)
        or one number along an axis; `weights` (rows, places) says which places count."""
        energy = branch.double().cpu().square()
        if weights is not None:
            energy = energy * weights[:, None]
        gated = gate.double().cpu() * energy
        self._add(energy.sum((0, 2)), gated.sum((0, 2)))

    def _add(self, branch: Tensor, gated: Tensor) -> None:
        self.of_branch = branch if self.of_branch is None else self.of_branch + branch
        self.of_gated = gated if self.of_gated is None else self.of_gated + gated


class _Fitting(Taps):
    """Counts gates and the energy of their branches."""

    def __init__(
        self, taps: Mapping[str, Tap], axes: Mapping[str, int], mask: MaskArgument | None
    ) -> None:
        super().__init__(taps, mask)
        self.axes = axes
        self.energies = {name: _Energy() for name in taps}

    def branch_seen(self, name: str, branch: Tensor) -> None:
        """`branch` is about to be multiplied by the gate `name`."""
        by_channel = branch.detach().movedim(self.axes[name], 1).flatten(2)
        self.energies[name].now = by_channel.double().square().sum(2).cpu()

    def gate_seen(self, seen: SeenGate) -> Tensor | None:
        name = seen.gate.name
        if name in self.taps and self.taps[name].by_token:
            assert seen.branch is not None
            gate, branch = seen.pair()
            self.energies[name].see_places(gate, branch, self.weights(seen, branch))
        elif name in self.taps:
            if seen.branch is not None:
                self.branch_seen(name, seen.branch)
            self.energies[name].see(seen.by_channel())
        return super().gate_seen(seen)


def fit(
    model: nn.Module, found: Watchable, places: Sequence[Place], parts: Sequence[Part]
) -> tuple[dict[str, Tap], dict[str, Tensor]]:
    """Return what is known of every gate without a constant after one pass over `parts`, by name;
    and the constants of those that have the same value at all pixels."""
    taps = taps_of(found, places)
    axes = {held.name: place.site.channel_axis for place in places for held in place.gates}
    observer = _Fitting(taps, axes, mask_argument(model))
    own = [gate.name for gate in found.gates if gate.kind == "own" and gate.name in taps]

    def before(name: str) -> Any:
        return lambda _module, arguments: observer.branch_seen(name, arguments[0])

    with ExitStack() as hooks:
        for name in own:
            module = model.get_submodule(name)
            hooks.enter_context(module.register_forward_pre_hook(before(name)))
        hooks.enter_context(watching(model, observer, found=tapped(found, taps)))
        for part in parts:
            with evaluating(model):
                call(model, part.inputs)
    constants = {
        name: _least_squares(tap, observer.energies[name])
        for name, tap in taps.items()
        if tap.images and not tap.varies_in_space
    }
    return taps, constants


def _least_squares(tap: Tap, energy: _Energy) -> Tensor:
    assert tap.mean is not None
    assert energy.of_branch is not None
    assert energy.of_gated is not None
    alive = energy.of_branch > 0
    safe = torch.where(alive, energy.of_branch, torch.ones_like(energy.of_branch))
    return torch.where(alive, energy.of_gated / safe, tap.mean)
