"""What is kept of a gate while images stream by: moments per channel and a bounded sample."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from attnlab._errors import InputError

MAPS = 12
MAP_SIDE = 24
"""Spatial maps are kept of no more than this many images and pixels a side: 27 kB per gate,
whatever the data set and the size of its images."""


class Reservoir:
    """Which images of a stream to keep: every image is kept with the same chance, whatever the
    length of the stream, and the choice is the same each time."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.seen = 0
        self._generator = torch.Generator().manual_seed(0)

    def choose(self, batch: int) -> list[tuple[int, int]]:
        """(slot, row of the batch) of those to keep; a later one replaces an earlier."""
        chosen: dict[int, int] = {}
        for row in range(batch):
            slot = self.seen
            if slot >= self.size:
                slot = int(torch.randint(self.seen + 1, (), generator=self._generator))
            if slot < self.size:
                chosen[slot] = row
            self.seen += 1
        return list(chosen.items())


class GateStream:
    """Running moments of one gate over images, per channel, in float64, and a sample."""

    def __init__(self, axis: int) -> None:
        self.axis = axis
        self.images = 0
        self.broken = 0
        """Of how many of them a value is not finite."""
        self.mean = torch.zeros(0, dtype=torch.float64)
        self.squares = torch.zeros(0, dtype=torch.float64)
        """Sum of squared deviations from the mean."""
        self.low = torch.zeros(0, dtype=torch.float64)
        self.high = torch.zeros(0, dtype=torch.float64)
        self.sample: dict[int, Tensor] = {}
        self.maps: dict[int, Tensor] = {}

    def see(self, gate: Tensor, batch: int, chosen: Sequence[tuple[int, int]]) -> None:
        """Take in the gate of a batch; a gate that does not depend on the image may be one row."""
        channel_first = gate.detach().movedim(self.axis, 1)
        if len(channel_first) not in (1, batch):
            raise InputError(
                f"Expected a gate to have the {batch} images along its first axis but got shape "
                f"{tuple(gate.shape)}: the network puts the tokens in front of the images, or "
                f"windows of an image side by side. Let it put the images first, or choose other "
                f"places for the gates: where=..."
            )
        channel_first = channel_first.expand(batch, *channel_first.shape[1:])
        values = channel_first.flatten(2).double().mean(2).cpu()
        self.broken += int((~values.isfinite().all(1)).sum())
        self._add(values)
        for slot, row in chosen:
            self.sample[slot] = values[row].float()
        if channel_first.dim() == 4 and channel_first.shape[2:].numel() > 1:
            self.see_map(channel_first.mean(1, keepdim=True), chosen)

    def see_map(self, maps: Tensor, chosen: Sequence[tuple[int, int]]) -> None:
        """Keep spatial attention (B, 1, H, W) of the chosen images."""
        side = min(maps.shape[2], MAP_SIDE), min(maps.shape[3], MAP_SIDE)
        for slot, row in ((slot, row) for slot, row in chosen if slot < MAPS):
            self.maps[slot] = adaptive_avg_pool2d(maps[row].detach().float(), side)[0].cpu()

    def _add(self, values: Tensor) -> None:
        """Merge a batch into the moments (Chan, Golub and LeVeque): no loss of digits where the
        deviation is tiny beside the mean, which is what stripes are."""
        number, mean = len(values), values.mean(0)
        squares = (values - mean).square().sum(0)
        if self.images == 0:
            self.images, self.mean, self.squares = number, mean, squares
            self.low, self.high = values.amin(0), values.amax(0)
            return
        total = self.images + number
        shift = mean - self.mean
        self.mean = self.mean + shift * (number / total)
        self.squares = self.squares + squares + shift.square() * (self.images * number / total)
        self.low = torch.minimum(self.low, values.amin(0))
        self.high = torch.maximum(self.high, values.amax(0))
        self.images = total

    def spread(self) -> Tensor:
        """Standard deviation over images, per channel; exactly 0 where no image differs, though the
        mean of equal numbers may be rounded."""
        spread = (self.squares / max(self.images, 1)).sqrt()
        return torch.where(self.low == self.high, 0.0, spread)

    @property
    def same_for_all(self) -> bool:
        """Whether every image had the same gate to the last bit."""
        return bool((self.low == self.high).all())
