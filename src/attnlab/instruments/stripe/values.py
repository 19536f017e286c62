"""The gates of a network over images as tensors, and the numbers behind the stripe observation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab._errors import InputError
from attnlab.residuals import Observer, SeenGate
from attnlab.residuals.example import call, evaluating
from attnlab.residuals.inputs import head, inputs_of
from attnlab.residuals.watching import watching
from attnlab.surgery.insertion import attachments


class GateStatistics(NamedTuple):
    """One gate over images and channels. The stripe observation is that `image_spread` is far
    below `channel_spread`: the gate hardly depends on the image."""

    label: str
    mean: float
    image_spread: float
    """Standard deviation over images, mean over channels."""
    channel_spread: float
    """Standard deviation over channels of the mean over images."""


def gate_values(network: nn.Module, batches: Iterable[Any]) -> dict[str, Tensor]:
    """Each inserted gate by its module's name, (images, channels), averaged over space; one row
    where it does not depend on the image. A gate that does not run is left out.

    Runs in eval mode without gradients.
    """
    inputs = (each for batch in batches for each in inputs_of(batch, network))
    first = next(inputs, None)
    if first is None:
        raise InputError("Expected at least one batch but got none.")
    seen = _Values()
    with evaluating(network), watching(network, seen, head(first, 1)):
        for batch in chain([first], inputs):
            call(network, batch)
    found = {name: torch.cat(rows) for name, rows in seen.rows.items()}
    return {name: v[:1] if (v == v[:1]).all() else v for name, v in found.items()}


def gate_statistics(network: nn.Module, values: Mapping[str, Tensor]) -> tuple[GateStatistics, ...]:
    """One row per gate of `gate_values`."""
    labels = {name: attachment.site.label for name, attachment in attachments(network)}
    return tuple(
        GateStatistics(
            label=labels[name],
            mean=value.mean().item(),
            image_spread=value.std(0, correction=0).mean().item(),
            channel_spread=value.mean(0).std(correction=0).item(),
        )
        for name, value in values.items()
    )


class _Values(Observer):
    def __init__(self) -> None:
        self.rows: dict[str, list[Tensor]] = {}

    def gate_seen(self, seen: SeenGate) -> None:
        if len(seen.gate.calls) > 1:
            raise InputError(
                f"The gate {seen.gate.name!r} acts {len(seen.gate.calls)} times in one forward, so "
                f"it has no one value per image. Measure the network that calls it once."
            )
        if seen.gate.kind == "inserted":
            rows = self.rows.setdefault(seen.gate.name, [])
            rows.append(seen.by_channel().mean(2).float())
