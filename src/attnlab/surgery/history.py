"""What was done to a network, kept with it, so that a file can say it.

The notes are plain data in one attribute: a network that is pickled as a whole can be read where
attnlab is not installed. A copy has them too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from hashlib import sha256
from typing import Any

from torch import Tensor, nn

_ATTRIBUTE = "_surgery_history"


@dataclass(frozen=True)
class Made:
    """It was built by these arguments of a description; whatever was done before does not count."""

    described: dict[str, Any]
    published: str | None = None
    """The name of the library's own weights that it has."""


@dataclass(frozen=True)
class Found:
    """What it was before the first surgery."""

    shapes: dict[str, tuple[int, ...]]
    """Of its tensors, by their names."""
    settings: str
    """Of its modules, in short: `settings_of`."""
    input_size: list[int] | None = None
    """Channels, height and width of the example that was given."""


@dataclass(frozen=True)
class Inserted:
    """Gates were inserted, by these arguments of `insert`."""

    gate: str
    """Empty for a class that cannot be imported by name."""
    where: str | list[str] | None
    start: str
    place: str
    shared: bool
    options: dict[str, Any]


@dataclass(frozen=True)
class Replaced:
    """Feature operators took the place of convolutions."""

    operator: str
    """Empty for a function, or a class that cannot be imported by name."""
    sites: list[str]
    options: dict[str, Any]


@dataclass(frozen=True)
class FoldedOrFused:
    """Gates went into layers, or layers into one another."""

    removed: list[str] = field(default_factory=list)
    affine: list[str] = field(default_factory=list)
    fused: bool = False


@dataclass(frozen=True)
class Shortened:
    """Steps were taken out: what took the place of which module."""

    replaced: dict[str, str]


Event = Made | Found | Inserted | Replaced | FoldedOrFused | Shortened
_KINDS: dict[str, type[Event]] = {
    "made": Made,
    "found": Found,
    "inserted": Inserted,
    "replaced": Replaced,
    "folded": FoldedOrFused,
    "shortened": Shortened,
}


def record_event(network: nn.Module, event: Event) -> None:
    """Keep with `network` what was done to it."""
    kind = next(name for name, each in _KINDS.items() if type(event) is each)
    plain = {each.name: getattr(event, each.name) for each in fields(event)}
    before: Sequence[object] = () if kind == "made" else vars(network).get(_ATTRIBUTE, ())
    # A new list each time: a shallow copy of the network must not share it.
    vars(network)[_ATTRIBUTE] = [*before, (kind, plain)]


def recorded(network: nn.Module) -> list[Event]:
    """Return what was done to `network`, in order."""
    return [_KINDS[kind](**plain) for kind, plain in vars(network).get(_ATTRIBUTE, ())]


def forget_insertions(network: nn.Module) -> None:
    """After all gates were removed: a network that nothing else was done to is as it was before."""
    events = vars(network).get(_ATTRIBUTE, [])
    if any(kind not in ("made", "found", "inserted") for kind, _ in events):
        return  # what was folded is told by its place in the network with gates
    made = [(kind, plain) for kind, plain in events if kind == "made"]
    if made:
        vars(network)[_ATTRIBUTE] = made
    else:
        vars(network).pop(_ATTRIBUTE, None)


def record_start(network: nn.Module, example: object) -> None:
    """Keep what `network` is before its first surgery, if nothing is known of it yet."""
    if not recorded(network):
        record_event(network, found_now(network, example))


def found_now(network: nn.Module, example: Any = None) -> Found:
    """Return what `network` is now."""
    shapes = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    images = isinstance(example, Tensor) and example.ndim == 4
    size = list(example.shape[1:]) if images else None
    return Found(shapes, settings_of(network), size)


def settings_of(network: nn.Module) -> str:
    """A digest of all numbers and texts that its modules hold: strides, rates of dropout, epsilons.
    Two networks with the same tensors may differ in these, and only in training."""
    found = [
        f"{name} {type(module).__qualname__} {attribute}={value!r}"
        for name, module in network.named_modules()
        for attribute, value in sorted(vars(module).items())
        if isinstance(value, bool | int | float | str) and attribute != "training"
    ]
    return sha256("\n".join(found).encode()).hexdigest()
