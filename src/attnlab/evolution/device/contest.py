"""The operators and others on one device, timed interleaved, and the limits of that device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from attnlab.evolution.device.machine import median_seconds
from attnlab.evolution.device.peers import (
    NotHereError,
    Peer,
    attention_peers,
    involution_peers,
)

OURS = "attnlab"


@dataclass(frozen=True)
class Case:
    """A problem: images and a window. Groups have 16 channels, heads 32, or all there are."""

    batch: int
    channels: int
    size: int
    kernel_size: int

    @property
    def groups(self) -> int:
        return max(1, self.channels // 16)

    @property
    def heads(self) -> int:
        return max(1, self.channels // 32)

    @property
    def numbers(self) -> int:
        """The numbers of one feature map."""
        return self.batch * self.channels * self.size**2

    def maps_shape(self) -> tuple[int, ...]:
        return (self.batch, self.groups, self.kernel_size**2, self.size, self.size)


@dataclass(frozen=True)
class PeerTimes:
    """One way to compute an operator on one device."""

    operator: str
    name: str
    forward: float | None = None
    """Seconds of a forward pass."""
    both: float | None = None
    """Seconds of forward with backward to all operands."""
    inside: float | None = None
    """Largest difference to ours relative to its largest number, where no window is cut."""
    border: float | None = None
    """The largest difference where a window is cut."""
    remark: str = ""
    """Why it was not run, or not backwards."""


class Work(NamedTuple):
    """The least that must be done: bytes moved, each operand and result once, and FLOPs."""

    moved: float
    flops: float


def least_work(case: Case, operator: str, backward: bool, itemsize: int) -> Work:
    """Return the least work of a forward pass, or of forward with backward."""
    x, maps = case.numbers, torch.Size(case.maps_shape()).numel()
    products = 2 * case.kernel_size**2 * x
    if operator == "involution":
        # Back: maps, x and the gradient are read, two gradients written.
        numbers = maps + 2 * x + (2 * maps + 3 * x if backward else 0)
        return Work(itemsize * numbers, products * (3 if backward else 1))
    # Back: query, key, value, gradient and result are read, three gradients written.
    return Work(itemsize * x * (12 if backward else 4), products * (2 + 4 if backward else 2))


def race(
    case: Case, device: torch.device, dtype: torch.dtype, blocks: int = 9
) -> Iterator[PeerTimes]:
    """Time every way to compute involution and local attention, ours first."""
    made = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=made).to(device, dtype)

    shape = (case.batch, case.channels, case.size, case.size)
    x, key, value, gradient = (random(*shape) for _ in range(4))
    maps = random(*case.maps_shape())
    yield from _compare(
        "involution", involution_peers(case.kernel_size), (maps, x), gradient, case, blocks
    )
    peers = attention_peers(case.heads, case.kernel_size)
    yield from _compare("attention", peers, (x, key, value), gradient, case, blocks)


@dataclass
class _Entry:
    """A peer in the contest, as far as it runs here."""

    forward: Callable[[], Tensor] | None = None
    both: Callable[[], object] | None = None
    inside: float | None = None
    border: float | None = None
    remark: str = ""


def _compare(
    operator: str,
    builders: dict[str, Callable[[], Peer]],
    operands: tuple[Tensor, ...],
    gradient: Tensor,
    case: Case,
    blocks: int,
) -> Iterator[PeerTimes]:
    entries: dict[str, _Entry] = {}
    expected: Tensor | None = None
    for name, build in builders.items():
        entries[name], out = _entered(name, build, operands, gradient, expected, case)
        expected = out if expected is None else expected
    forwards = {name: each.forward for name, each in entries.items() if each.forward}
    boths = {name: each.both for name, each in entries.items() if each.both}
    forward_seconds = median_seconds(forwards, gradient.device, blocks)
    both_seconds = median_seconds(boths, gradient.device, blocks)
    for name, entry in entries.items():
        yield PeerTimes(
            operator,
            name,
            forward_seconds.get(name),
            both_seconds.get(name),
            entry.inside,
            entry.border,
            entry.remark,
        )


def _entered(
    name: str,
    build: Callable[[], Peer],
    operands: tuple[Tensor, ...],
    gradient: Tensor,
    expected: Tensor | None,
    case: Case,
) -> tuple[_Entry, Tensor | None]:
    """Run a peer once, compare its result with ours; what fails is left out with a remark, unless
    it is ours."""
    entry, out = _Entry(), None
    try:
        peer = build()
        forward, both = _runs(peer, peer.prepare(*operands), gradient)
        out = peer.restore(forward())
        ours = out if expected is None else expected
        entry.inside, entry.border = _differences(out, ours, case.kernel_size // 2)
        entry.forward = forward
        both()
        entry.both = both
    except Exception as error:
        if name == OURS:
            raise
        entry.remark = _why(error)
        if entry.forward is not None:
            entry.remark = f"no backward pass: {entry.remark}"
    return entry, out


def _why(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0]
    return text if isinstance(error, NotHereError) else f"{type(error).__name__}: {text}"


def _runs(
    peer: Peer, inputs: tuple[Tensor, ...], gradient: Tensor
) -> tuple[Callable[[], Tensor], Callable[[], object]]:
    """Return two runs: without gradients, and with backward to all inputs."""

    def forward() -> Tensor:
        with torch.no_grad():
            return peer.run(*inputs)

    leaves = tuple(t.detach().requires_grad_() for t in inputs)
    prepared = peer.prepare(gradient)[0]

    def both() -> object:
        return torch.autograd.grad(peer.run(*leaves), leaves, prepared)

    return forward, both


def _differences(out: Tensor, ours: Tensor, reach: int) -> tuple[float | None, float | None]:
    """Return the differences inside and at the border; None if there are no such pixels."""
    apart = (out.double() - ours.double()).abs() / ours.double().abs().max()
    whole = torch.zeros_like(apart, dtype=torch.bool)
    height, width = ours.shape[2:]
    whole[:, :, reach : height - reach, reach : width - reach] = True

    def largest(chosen: Tensor) -> float | None:
        return float(apart[chosen].max()) if chosen.any() else None

    return largest(whole), largest(~whole)
