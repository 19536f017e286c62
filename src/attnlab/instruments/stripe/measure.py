"""`stripe(network, loader)`: stream images through a network and watch its gates."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor, nn

from attnlab._checked import check_batches, check_module, check_whole
from attnlab._errors import DoesNotApplyError, InputError, StepsNotFoundError
from attnlab._spread import evenly_spread
from attnlab.gates import ConvolutionalBlockAttention
from attnlab.instruments.different import DifferentInputs
from attnlab.instruments.measurement import MeasureConfig, Measurement
from attnlab.instruments.stripe._stream import GateStream, Reservoir
from attnlab.instruments.stripe.result import SiteStripe, StripeResult
from attnlab.residuals import GateSource, Observer, SeenGate, watchable
from attnlab.residuals.example import call, evaluating
from attnlab.residuals.gates import has_gates
from attnlab.residuals.inputs import Batches, head, inputs_of, number_of_inputs
from attnlab.residuals.padding import MaskArgument, mask_argument, padding_of_call
from attnlab.residuals.watching import Watchable, watching
from attnlab.subject import Source, Subject, subject_of


def usable_gates(
    model: nn.Module, gates: Sequence[GateSource]
) -> tuple[list[GateSource], list[str]]:
    """The gates with one value per image, and notes on the others."""
    notes = [
        f"{gate.name} is left out: it runs {len(gate.calls)} times in one forward."
        for gate in gates
        if len(gate.calls) != 1
    ]
    found = [gate for gate in gates if len(gate.calls) == 1]
    if not gates:
        raise StepsNotFoundError(
            f"{type(model).__name__} has no gate to watch: no gate that attnlab inserted, no "
            f"squeeze-and-excitation module of timm or torchvision, and nothing that multiplies in "
            f"its steps (LayerScale, gated attention, hyper-connections). Insert one first, for "
            f"example attnlab.insert(model, 'se'), or on the command line --gate se."
        )
    if not found:
        raise StepsNotFoundError(
            f"No gate of {type(model).__name__} runs once in one forward, so none has one value "
            f"per image. {' '.join(notes)}"
        )
    return found, notes


class GateStreams(Observer):
    """One stream per gate, of which images samples are kept, and how many of them differ."""

    sees_products = True

    def __init__(
        self, gates: Sequence[GateSource], sample: int, mask: MaskArgument | None = None
    ) -> None:
        self.gates = gates
        self.mask = mask
        """What tells of padding in a call."""
        self._valid: Tensor | None = None
        axes = {gate.name: 1 if gate.multipliers else gate.channel_axis for gate in gates}
        self.streams = {name: GateStream(axis) for name, axis in axes.items()}
        self.reservoir = Reservoir(sample)
        self.different = DifferentInputs()
        self._batch = 0
        self._chosen: list[tuple[int, int]] = []
        self._spatial: dict[str, Tensor] = {}

    def call_begun(self, arguments: tuple[object, ...], keywords: dict[str, object]) -> None:
        self._batch = number_of_inputs(arguments, keywords)
        self._chosen = self.reservoir.choose(self._batch)
        self.different.see(arguments, keywords)
        self._valid = padding_of_call(self.mask, arguments, keywords)

    def gate_seen(self, seen: SeenGate) -> None:
        if seen.gate.name in self.streams:
            value = self._without_padding(seen) if seen.gate.multipliers else seen.value
            self.streams[seen.gate.name].see(value, self._batch, self._chosen)

    def _without_padding(self, seen: SeenGate) -> Tensor:
        """The values of what the network multiplies by; of padded tokens the mean of the others."""
        value, valid = seen.by_channel(), self._valid
        if valid is None or value.shape[::2] != valid.shape:
            return value
        weights = valid.to(value)[:, None]
        return (value * weights).sum(2, keepdim=True) / weights.sum(2, keepdim=True)

    def call_ended(self, output: object) -> None:
        del output
        # CBAM's own spatial factor takes the place of the gate's mean over channels.
        for name, maps in self._spatial.items():
            self.streams[name].see_map(maps, self._chosen)
        self._spatial.clear()

    def spatial_factors(self) -> ExitStack:
        """Have CBAM's spatial attention (B, 1, H, W) seen as well, while entered."""
        hooks = ExitStack()
        for gate in self.gates:
            if isinstance(gate.module, ConvolutionalBlockAttention):
                last = gate.module.conv if gate.module.norm is None else gate.module.norm
                hooks.enter_context(last.register_forward_hook(self._sigmoid(gate.name)))
        return hooks

    def _sigmoid(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, arguments: object, output: Tensor) -> None:
            del module, arguments
            self._spatial[name] = torch.sigmoid(output)

        return hook


IMAGES = 256
"""How many images are watched, unless the subject was opened with a limit."""


def stripe(
    network: Source,
    loader: Batches | None = None,
    *,
    sample: int = 48,
    channels: int = 64,
    name: str | None = None,
) -> StripeResult:
    """Watch the gates of a network over images: do they differ between images, or only between
    channels? Vertical stripes in the pictures mean that a gate hardly depends on the image.

    Runs in eval mode without gradients, once over 256 images unless the limit is another. Memory
    does not grow with the data: moments per channel are kept of all images, values of some.

    Args:
        network: a network with gates that attnlab inserted or with its own (squeeze-and-excitation,
            gated attention, LayerScale, hyper-connections), as for `attnlab.open`.
        loader: batches in the place of the network's own images: a tensor, a tuple whose first
            element is one or, for detectors, a list of images of any sizes, or a dictionary of
            inputs.
        sample: how many images to keep for the pictures, each with the same chance.
        channels: how many channels of a gate to keep of these, evenly spread.
        name: of the network, for the report.
    """
    check_whole("sample", sample, 1)
    check_whole("channels", channels, 1)
    began = time.perf_counter()
    subject = subject_of(network, loader)
    seen, notes = _watched(subject.network, subject.inputs(IMAGES), sample)
    sites = (_site(gate, seen, channels) for gate in seen.gates)
    found = StripeResult(
        network=name or subject.name,
        images=seen.reservoir.seen,
        different_images=seen.different.number,
        sites=tuple(sites),
        seconds=time.perf_counter() - began,
        notes=tuple(notes),
    )
    return subject.sign(found)


def gate_values(
    network: nn.Module, batches: Batches, *, found: Watchable | None = None
) -> dict[str, Tensor]:
    """Every gate that `stripe` sees by its module's name: a tensor (images, channels) in float32,
    averaged over space, with one row if the gate is the same for every image.

    Runs in eval mode without gradients and keeps the gates of all images. `found` is what
    `watchable` returned, if it was called.
    """
    check_module(network)
    check_batches(batches)
    seen, _ = _watched(network, batches, sys.maxsize, found)
    return {name: _values(stream) for name, stream in seen.streams.items()}


def gate_means(
    network: nn.Module, batches: Batches, *, found: Watchable | None = None
) -> dict[str, Tensor]:
    """The mean over images of every gate that `stripe` sees, by its module's name: one number per
    channel, in float64 with all digits. `found` is what `watchable` returned, if it was called."""
    check_module(network)
    check_batches(batches)
    seen, _ = _watched(network, batches, 1, found)
    return {name: stream.mean for name, stream in seen.streams.items()}


def _watched(
    model: nn.Module, batches: Batches, sample: int, found: Watchable | None = None
) -> tuple[GateStreams, list[str]]:
    """The gates of `model` over `batches`, with the values of `sample` images; and notes on the
    gates that are left out."""
    inputs = (each for batch in batches for each in inputs_of(batch, model))
    first = next(inputs, None)
    if first is None:
        raise InputError("Expected a loader with at least one batch but got an empty one.")
    if found is None:
        found = watchable(model, head(first, 1))  # an error if its values are not finite
    gates, notes = usable_gates(model, found.gates)
    seen = GateStreams(gates, sample, mask_argument(model))
    with evaluating(model), watching(model, seen, found=found), seen.spatial_factors():
        for batch in chain([first], inputs):
            call(model, batch)
    _check_finite(seen)
    return seen, notes


def _check_finite(seen: GateStreams) -> None:
    """Refuse gates that were not finite on some image: neither spread nor mean would be."""
    for name, stream in seen.streams.items():
        if stream.broken:
            raise InputError(
                f"The gate {name!r} has values that are not finite on {stream.broken} of "
                f"{stream.images} images. Expected images as the network takes them, and weights "
                f"and a precision in which it computes numbers."
            )


def _values(stream: GateStream) -> Tensor:
    slots = [0] if stream.same_for_all else sorted(stream.sample)
    return torch.stack([stream.sample[slot] for slot in slots])


def _site(gate: GateSource, seen: GateStreams, channels: int) -> SiteStripe:
    stream = seen.streams[gate.name]
    number = len(stream.mean)
    kept = evenly_spread(number, channels)
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
        constant=seen.different.enough and stream.same_for_all,
        channel_means=_rounded(stream.mean),
        sampled_channels=tuple(kept),
        sample=tuple(_rounded(stream.sample[slot][kept]) for slot in sorted(stream.sample)),
        maps=tuple(
            tuple(_rounded(row) for row in stream.maps[slot]) for slot in sorted(stream.maps)
        ),
    )


def _rounded(values: Tensor) -> tuple[float, ...]:
    """Five digits: these are for pictures, and JSON of all digits is three times as long."""
    return tuple(float(f"{value:.5g}") for value in values.tolist())


class StripeMeasurement(Measurement):
    """All that `attnlab.stripe` finds about the gates of the network, on test images."""

    name = "stripe"

    def settings(self, config: MeasureConfig) -> dict[str, int] | None:
        return {"images": config.images} if config.images else None

    def measure(self, subject: Subject, config: MeasureConfig, folder: Path) -> StripeResult:
        del folder
        if not has_gates(subject.network):
            raise DoesNotApplyError
        try:
            return stripe(subject.network, subject.inputs(config.images))
        except StepsNotFoundError as error:
            raise DoesNotApplyError(str(error)) from None
