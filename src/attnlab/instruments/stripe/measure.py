"""`stripe(model, loader)`: stream images through a network and watch its gates."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import chain
from typing import Any

from torch import Tensor, nn

from attnlab._checked import check_batches, check_module, check_whole
from attnlab._errors import InputError
from attnlab._spread import evenly_spread
from attnlab.instruments.stripe._observer import GateStreams, usable_gates
from attnlab.instruments.stripe._stream import GateStream
from attnlab.instruments.stripe.figures import FEWEST_IMAGES, too_few_images
from attnlab.instruments.stripe.result import SiteStripe, StripeResult
from attnlab.residuals import GateSource, watchable
from attnlab.residuals.example import call, evaluating, uncompiled
from attnlab.residuals.inputs import head, inputs_of
from attnlab.residuals.watching import watching


def stripe(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    sample: int = 48,
    channels: int = 64,
    name: str | None = None,
) -> StripeResult:
    """The gates of `model` over `loader`, in one pass: how much they differ between images, and
    between channels.

    Runs in eval mode without gradients. Memory does not grow with the data: moments per channel are
    kept of all images, values of `sample` of them.

    Args:
        model: a network with gates that attnlab inserted, or squeeze-and-excitation of its own.
        loader: batches: a tensor, a tuple whose first element is one or, for detectors, a list of
            images of any sizes, or a dictionary of inputs.
        sample: how many images to keep for the pictures, each with the same chance.
        channels: how many channels of a gate to keep of these, evenly spread.
        name: of the network, for the report.
    """
    check_module(model)
    model = uncompiled(model)
    check_batches(loader)
    check_whole("sample", sample, 1)
    check_whole("channels", channels, 1)
    began = time.perf_counter()
    batches = (inputs for batch in loader for inputs in inputs_of(batch, model))
    first = next(batches, None)
    if first is None:
        raise InputError("Expected a loader with at least one batch but got an empty one.")
    found = watchable(model, head(first, 1))  # an error where its values are not finite
    gates, notes = usable_gates(model, found.gates)
    seen = GateStreams(gates, sample)
    with evaluating(model), watching(model, seen, found=found), seen.spatial_factors():
        for batch in chain([first], batches):
            call(model, batch)
    different = seen.inputs.number
    notes += [few] if (few := too_few_images(different)) else []
    return StripeResult(
        network=name or type(model).__name__,
        images=seen.reservoir.seen,
        different=different,
        sites=tuple(_site(gate, seen.streams[gate.name], channels, different) for gate in gates),
        seconds=time.perf_counter() - began,
        notes=tuple(notes),
    )


def _site(gate: GateSource, stream: GateStream, channels: int, different: int) -> SiteStripe:
    number = len(stream.mean)
    kept = evenly_spread(number, channels)
    slots = sorted(stream.sample)
    return SiteStripe(
        label=gate.label,
        name=gate.name,
        kind=gate.kind,
        channels=number,
        mean=stream.mean.mean().item(),
        smallest=stream.low.min().item(),
        largest=stream.high.max().item(),
        image_spread=stream.spread().mean().item(),
        channel_spread=stream.mean.std(correction=0).item(),
        constant=different >= FEWEST_IMAGES and bool((stream.low == stream.high).all()),
        channel_means=_rounded(stream.mean),
        sampled_channels=tuple(kept.tolist()),
        sample=tuple(_rounded(stream.sample[slot][kept]) for slot in slots),
        maps=tuple(
            tuple(_rounded(row) for row in stream.maps[slot]) for slot in sorted(stream.maps)
        ),
    )


def _rounded(values: Tensor) -> tuple[float, ...]:
    """Five digits: these are for pictures, and JSON of all digits is three times as long."""
    return tuple(float(f"{value:.5g}") for value in values.tolist())
