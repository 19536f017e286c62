"""`stripe(model, loader)`: stream images through a network and watch its gates."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from attnlab._errors import InputError, OptionError
from attnlab.record.example import Example, as_call, evaluating, input_shape
from attnlab.stripe._gates import Source, find_gates, watching
from attnlab.stripe._stream import GateStream, Reservoir
from attnlab.stripe.result import SiteStripe, StripeResult


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
        loader: batches: a tensor, a tuple whose first element is one, or a dictionary of inputs.
        sample: how many images to keep for the pictures, each with the same chance.
        channels: how many channels of a gate to keep of these, evenly spread.
        name: of the network, for the report.
    """
    if sample < 1 or channels < 1:
        raise OptionError(
            f"Expected sample and channels to be at least 1 but got {sample} and {channels}."
        )
    began = time.perf_counter()
    batches = _inputs(model, loader)
    first = next(batches, None)
    if first is None:
        raise InputError("Expected a loader with at least one batch but got an empty one.")
    sources, notes = find_gates(model, first)
    streams = [GateStream(source.axis) for source in sources]
    reservoir = Reservoir(sample)
    batch, chosen = 0, [(0, 0)]

    def gate(place: int, value: Tensor) -> None:
        streams[place].see(value, batch, chosen)

    def spatial(place: int, value: Tensor) -> None:
        exact.append((place, value))

    exact: list[tuple[int, Tensor]] = []
    with evaluating(model), watching(model, sources, gate, spatial):
        for example in _chain(first, batches):
            arguments, keywords = as_call(model, example)
            batch = input_shape(arguments, keywords)[0]
            chosen = reservoir.choose(batch)
            model(*arguments, **keywords)
            # CBAM's own spatial factor takes the place of the gate's mean over channels.
            for place, value in exact:
                streams[place].see_map(value, chosen)
            exact.clear()
    sites = tuple(_site(s, g, channels) for s, g in zip(sources, streams, strict=True))
    return StripeResult(
        network=name or type(model).__name__,
        images=reservoir.seen,
        sites=sites,
        seconds=time.perf_counter() - began,
        notes=tuple(notes),
    )


def _site(source: Source, stream: GateStream, channels: int) -> SiteStripe:
    number = len(stream.mean)
    kept = torch.linspace(0, number - 1, min(number, channels)).round().long()
    slots = sorted(stream.sample)
    return SiteStripe(
        label=source.label,
        name=source.name,
        kind=source.kind,
        channels=number,
        mean=stream.mean.mean().item(),
        smallest=stream.low.min().item(),
        largest=stream.high.max().item(),
        image_spread=stream.spread().mean().item(),
        channel_spread=stream.mean.std(correction=0).item(),
        constant=bool((stream.low == stream.high).all()),
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


def _inputs(model: nn.Module, loader: Iterable[Any]) -> Iterator[Example]:
    parameter = next((p for p in model.parameters()), torch.empty(0))
    for batch in loader:
        inputs = batch[0] if isinstance(batch, tuple | list) and batch else batch
        if not isinstance(inputs, Tensor | Mapping):
            raise InputError(
                f"Expected batches that are a tensor, start with one, or are a dictionary of "
                f"inputs but got {type(batch).__name__}."
            )
        yield tree_map(lambda v: v.to(parameter.device) if isinstance(v, Tensor) else v, inputs)


def _chain(first: Example, rest: Iterator[Example]) -> Iterator[Example]:
    yield first
    yield from rest
