"""Watch the gates of a network while it runs, or hold them at a constant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from attnlab.fold._library import gate_submodule
from attnlab.fold._places import Place
from attnlab.insert import Attachment


@dataclass
class Tap:
    """One gate: running sums over images, and the constant it is held at, if any."""

    axis: int
    """The channel axis of the gate, which has the rank of the tensor that it multiplies."""
    held_at: Tensor | None = None
    images: int = 0
    mean: Tensor | None = None
    deviations: Tensor | None = None
    """The sum of squared deviations from the mean, which is updated batch by batch."""
    varies_in_space: bool = False

    def see(self, gate: Tensor) -> Tensor:
        """What the network uses instead of `gate`."""
        if self.held_at is not None:
            sizes = [1] * gate.dim()
            sizes[self.axis] = -1
            return self.held_at.to(gate).reshape(sizes)
        rows = gate.detach().movedim(self.axis, 1).flatten(2).double().cpu()
        if rows.shape[2] > 1 and bool((rows != rows[:, :, :1]).any()):
            self.varies_in_space = True
        self._count(rows[:, :, 0])
        return gate

    def _count(self, values: Tensor) -> None:
        mean = values.mean(0)
        deviations = (values - mean).square().sum(0)
        if self.mean is None or self.deviations is None:
            self.mean, self.deviations, self.images = mean, deviations, len(values)
            return
        images = self.images + len(values)
        difference = mean - self.mean
        self.mean = self.mean + difference * (len(values) / images)
        both = difference.square() * (self.images * len(values) / images)
        self.deviations = self.deviations + deviations + both
        self.images = images

    def spread(self) -> float:
        """The deviation over images relative to the mean, both as lengths over the channels."""
        assert self.mean is not None
        assert self.deviations is not None
        variance = self.deviations.sum() / self.images
        return float(variance.sqrt() / self.mean.norm().clamp_min(1e-300))


def tap(network: nn.Module, place: Place, name: str) -> Tap:
    """Watch the gate of module `name` at `place`. The network stays tapped: use a copy."""
    module = network.get_submodule(name)
    watched = Tap(place.site.channel_axis)
    if isinstance(module, Attachment):
        step_size = module.step_size
        # On the instance, in front of the method of its class.
        module.__dict__["step_size"] = lambda branch, shortcut: watched.see(
            step_size(branch, shortcut)
        )
    else:
        gate = gate_submodule(module)
        assert gate is not None

        def hook(module: nn.Module, arguments: Any, output: Tensor) -> Tensor:
            del module, arguments
            return watched.see(output)

        gate.register_forward_hook(hook)
    return watched


def hold(network: nn.Module, places: Sequence[Place]) -> None:
    """Hold every gate of `places` that is to be folded at its constant."""
    for place in places:
        for held in place.folded:
            tap(network, place, held.name).held_at = held.constant
