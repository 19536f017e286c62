"""Watch the gates of a network while it runs, or hold them at a constant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from attnlab._errors import InputError
from attnlab.gates import TokenwiseGate
from attnlab.residuals import GateSource, Observer, SeenGate, Watchable
from attnlab.residuals.padding import MaskArgument, padding_of_call
from attnlab.surgery.folding._places import Place


@dataclass
class Tap:
    """One gate: running sums over images, and the constant it is held at, if any."""

    held_at: Tensor | None = None
    by_token: bool = False
    """Whether it has a value for every token, which all count alike, and padding not at all."""
    images: int = 0
    """Or tokens, if they count."""
    mean: Tensor | None = None
    deviations: Tensor | None = None
    """The sum of squared deviations from the mean, which is updated batch by batch."""
    varies_in_space: bool = False

    def see(self, gate: Tensor, weights: Tensor | None) -> None:
        """Take in the gate of a batch, (images, channels, places), where `weights` (images, places)
        says which places count."""
        rows = gate.double().cpu()
        if self.by_token:
            rows = rows.movedim(1, 2).flatten(0, 1)
            self._count(rows if weights is None else rows[weights.flatten() > 0])
            return
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


def by_token(gate: GateSource) -> bool:
    """Return whether the mean over tokens can stand for this gate: it looks at each token alone."""
    if gate.kind != "product":
        return isinstance(gate.module, TokenwiseGate)
    step, _ = gate.calls[0]
    return step is not None and step.channel_axis == len(step.shape) - 1  # tokens, not images


def taps_of(found: Watchable, places: Sequence[Place]) -> dict[str, Tap]:
    """A tap for every gate of `places` that has no constant and may be given one."""
    tokenwise = {gate.name: by_token(gate) for gate in found.gates}
    return {
        held.name: Tap(by_token=tokenwise[held.name])
        for place in places
        for held in place.gates
        if held.constant is None and not place.site.refusal
    }


def tapped(found: Watchable, taps: Mapping[str, Tap]) -> Watchable:
    """`found` without the products that nobody asks about: each is watched at a price."""
    gates = tuple(gate for gate in found.gates if gate.kind != "product" or gate.name in taps)
    return replace(found, gates=gates)


class Holds(Observer):
    """Holds the gates whose tap says so, by the names of their modules."""

    sees_products = True

    def __init__(self, taps: Mapping[str, Tap]) -> None:
        self.taps = taps

    def gate_seen(self, seen: SeenGate) -> Tensor | None:
        tap = self.taps.get(seen.gate.name)
        if tap is None or tap.held_at is None:
            return None
        value, held = seen.value, tap.held_at.to(seen.value)
        if seen.gate.multipliers:
            axes = seen.gate.multipliers[0].channel_axes
            sizes = [n if axis in axes else 1 for axis, n in enumerate(value.shape)]
            return held.reshape(sizes).expand_as(value)
        sizes = [1] * value.dim()
        sizes[seen.gate.channel_axis] = -1
        if seen.branch is not None and len(held) > value.shape[seen.gate.channel_axis]:
            # A gate of one number for all channels is held at one for each of them.
            value = seen.branch
        return held.reshape(sizes).expand_as(value)


class Taps(Holds):
    """What `Holds` does, and counts the taps that are not held; padding, of which an argument of
    the network tells, does not count."""

    def __init__(self, taps: Mapping[str, Tap], mask: MaskArgument | None = None) -> None:
        super().__init__(taps)
        self.mask = mask
        self._valid: Tensor | None = None

    def call_begun(self, arguments: tuple[object, ...], keywords: dict[str, object]) -> None:
        self._valid = padding_of_call(self.mask, arguments, keywords)

    def gate_seen(self, seen: SeenGate) -> Tensor | None:
        held = super().gate_seen(seen)
        tap = self.taps.get(seen.gate.name)
        if held is None and tap is not None:
            gate = seen.by_channel()
            tap.see(gate, self.weights(seen, gate) if tap.by_token else None)
        return held

    def weights(self, seen: SeenGate, gate: Tensor) -> Tensor | None:
        """1 for the places (images, places) of a gate that count, 0 for padding; None if all do."""
        valid = self._valid
        if valid is None:
            return None
        images, tokens = valid.shape
        if len(gate) != images or gate.shape[2] % tokens:
            raise InputError(
                f"The gate {seen.gate.name!r} has {len(gate)} x {gate.shape[2]} places for "
                f"{images} inputs of {tokens} tokens, so which of them are padding cannot be told. "
                f"Pass inputs without padding."
            )
        each = gate.shape[2] // tokens
        return valid.cpu().double().repeat_interleave(each, 1)
