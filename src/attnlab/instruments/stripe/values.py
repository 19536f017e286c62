"""The gates of a network over images as tensors, and the numbers behind the stripe observation."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab._errors import InputError
from attnlab.instruments.stripe.figures import FEWEST_IMAGES
from attnlab.residuals import GateSource, Observer, SeenGate, watchable
from attnlab.residuals.example import call, evaluating, uncompiled
from attnlab.residuals.inputs import DifferentInputs, head, inputs_of
from attnlab.residuals.watching import watching


class GateStatistics(NamedTuple):
    """One gate over images and channels. The stripe observation is that `image_spread` is far
    below `channel_spread`: the gate hardly depends on the image."""

    label: str
    mean: float
    image_spread: float
    """Standard deviation over images, mean over channels."""
    channel_spread: float
    """Standard deviation over channels of the mean over images."""


class GateValues(NamedTuple):
    """The values of a network's gates over images."""

    gates: tuple[GateSource, ...]
    values: dict[str, Tensor]
    """By the gate's name: (images, channels), averaged over space; one row where every image has
    the same."""
    different: int
    """How many of the images differ from all others in a bit, counted up to eight."""


def gate_values(network: nn.Module, batches: Iterable[Any]) -> GateValues:
    """The values of all gates that `stripe` sees: inserted ones, those in norms, the network's own.
    A gate that does not run is left out.

    Runs in eval mode without gradients.
    """
    network = uncompiled(network)
    inputs = (each for batch in batches for each in inputs_of(batch, network))
    first = next(inputs, None)
    if first is None:
        raise InputError("Expected at least one batch but got none.")
    found = watchable(network, head(first, 1))
    seen = _Values()
    if found.gates:
        with evaluating(network), watching(network, seen, found=found):
            for batch in chain([first], inputs):
                call(network, batch)
    rows = {name: torch.cat(rows) for name, rows in seen.rows.items()}
    values = {name: v[:1] if (v == v[:1]).all() else v for name, v in rows.items()}
    return GateValues(found.gates, values, seen.inputs.number)


def gate_statistics(found: GateValues) -> tuple[GateStatistics, ...]:
    """One row per gate of `gate_values`."""
    labels = {gate.name: gate.label for gate in found.gates}
    return tuple(
        GateStatistics(
            label=labels[name],
            mean=value.mean().item(),
            image_spread=value.std(0, correction=0).mean().item(),
            channel_spread=value.mean(0).std(correction=0).item(),
        )
        for name, value in found.values.items()
    )


class _Values(Observer):
    def __init__(self) -> None:
        self.rows: dict[str, list[Tensor]] = {}
        self.inputs = DifferentInputs(FEWEST_IMAGES)

    def call_begun(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        self.inputs.see(arguments, keywords)

    def gate_seen(self, seen: SeenGate) -> None:
        if len(seen.gate.calls) > 1:
            raise InputError(
                f"The gate {seen.gate.name!r} acts {len(seen.gate.calls)} times in one forward, so "
                f"it has no one value per image. Measure the network that calls it once."
            )
        rows = self.rows.setdefault(seen.gate.name, [])
        rows.append(seen.by_channel().mean(2).float())
