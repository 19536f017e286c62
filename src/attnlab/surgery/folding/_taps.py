"""Watch the gates of a network while it runs, or hold them at a constant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from attnlab.residuals import Observer, SeenGate


@dataclass
class Tap:
    """One gate: running sums over images, and the constant it is held at, if any."""

    held_at: Tensor | None = None
    images: int = 0
    mean: Tensor | None = None
    deviations: Tensor | None = None
    """The sum of squared deviations from the mean, which is updated batch by batch."""
    varies_in_space: bool = False

    def see(self, gate: Tensor) -> None:
        """Take in the gate of a batch, (images, channels, places)."""
        rows = gate.double().cpu()
        if rows.shape[2] > 1 and bool((rows != rows[:, :, :1]).any()):
            self.varies_in_space = True
        self._count(rows[:, :, 0])

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


class Holds(Observer):
    """Holds the gates whose tap says so, by the names of their modules."""

    def __init__(self, taps: Mapping[str, Tap]) -> None:
        self.taps = taps

    def gate_seen(self, seen: SeenGate) -> Tensor | None:
        tap = self.taps.get(seen.gate.name)
        if tap is None or tap.held_at is None:
            return None
        sizes = [1] * seen.value.dim()
        sizes[seen.gate.channel_axis] = -1
        return tap.held_at.to(seen.value).reshape(sizes).expand_as(seen.value)


class Taps(Holds):
    """And counts those that are not held."""

    def gate_seen(self, seen: SeenGate) -> Tensor | None:
        held = super().gate_seen(seen)
        tap = self.taps.get(seen.gate.name)
        if held is None and tap is not None:
            tap.see(seen.by_channel())
        return held
