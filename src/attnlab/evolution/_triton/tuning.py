"""How large the blocks are that one program takes.

`fixed` is a choice that compiles without spilling registers on every tested target. On a GPU Triton
times a few others once for each kind of problem and keeps the fastest. Not so where torch was told
to be deterministic, because sums over channels are rounded as the blocks fall, nor in the
interpreter, nor inside `fixed_blocks`.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import triton

WARPS = 4
TILE = 2048
"""Numbers of one operand that a program holds in registers; attention holds several operands."""
_timing = True


class Blocks(NamedTuple):
    """Channels and pixels of a program."""

    channels: int
    pixels: int


def power(count: int) -> int:
    """The smallest power of two that is not below `count`."""
    return 1 << max(0, count - 1).bit_length()


def fixed(channels: int, pixels: int, whole: bool) -> Blocks:
    """The choice without timing; `whole` where a program must hold all channels (attention)."""
    wide = power(channels) if whole else min(16, power(channels))
    tile = TILE // 2 if whole else TILE
    return Blocks(wide, min(max(16, min(128, tile // wide)), max(16, power(pixels))))


def candidates(channels: int, pixels: int, whole: bool) -> list[Blocks]:
    """Return the blocks that are worth timing, the fixed choice first."""
    first = fixed(channels, pixels, whole)
    wides = [first.channels] if whole else [8, 16, 32]
    found = [
        Blocks(wide, count)
        for wide in wides
        for count in (16, 32, 64, 128, 256)
        if wide <= power(channels) and count <= max(16, power(pixels))
        if TILE // 4 <= wide * count <= TILE
    ]
    return list(dict.fromkeys([first, *found]))


@contextlib.contextmanager
def fixed_blocks() -> Iterator[None]:
    """Time nothing inside the block: for many small problems, each of them run a few times."""
    global _timing
    before, _timing = _timing, False
    try:
        yield
    finally:
        _timing = before


def _time_blocks() -> bool:
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    return _timing and not interpreted and not torch.are_deterministic_algorithms_enabled()


def launch(
    kernel: Any,
    arguments: dict[str, Any],
    programs: Callable[[Blocks], int],
    channels: int,
    pixels: int,
    whole: bool = False,
) -> None:
    """Run `kernel` with `arguments`, on blocks of channels and pixels that are chosen here.

    `programs` says how many blocks there are. FP fusion is named because its default changes in
    Triton 3.10.
    """

    def grid(meta: dict[str, Any]) -> tuple[int]:
        return (programs(Blocks(meta["BLOCK_C"], meta["BLOCK_P"])),)

    if _time_blocks():
        timed = tuned(kernel, channels, power(pixels), whole)
        timed[grid](**arguments, enable_fp_fusion=True)
    else:
        blocks = fixed(channels, pixels, whole)
        sizes = {"BLOCK_C": blocks.channels, "BLOCK_P": blocks.pixels, "num_warps": WARPS}
        kernel[grid](**arguments, **sizes, enable_fp_fusion=True)


@functools.cache
def tuned(kernel: Any, channels: int, pixels: int, whole: bool) -> Any:
    """`kernel` with Triton's timing of the candidates, once per window and type of number."""
    configs = [
        triton.Config({"BLOCK_C": blocks.channels, "BLOCK_P": blocks.pixels}, num_warps=WARPS)
        for blocks in candidates(channels, pixels, whole)
    ]
    return triton.autotune(configs, key=["WINDOW"])(kernel)
