"""How others compute the same: unfold, a compiler, torch's flex_attention, NATTEN.

Each peer gets its operands in the layout it likes, made before the clock runs.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.evolution._kernels import interpreting, use_native
from attnlab.evolution.attention import local_attention
from attnlab.evolution.primitives import av
from attnlab.evolution.window import Window

Function = Callable[..., Tensor]


class NotHereError(Exception):
    """A peer that cannot run on this machine; the text says why."""


def _same(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tensors


@dataclass(frozen=True)
class Peer:
    """A way to compute an operator."""

    run: Function
    prepare: Callable[..., tuple[Tensor, ...]] = _same
    """(B, C, H, W) operands to what `run` takes."""
    restore: Function = lambda out: out
    """What `run` gives to (B, C, H, W)."""


def unfold_involution(maps: Tensor, x: Tensor, size: int) -> Tensor:
    """Aggregate as the authors' portable code does."""
    batch, groups, _, height, width = maps.shape
    windows = F.unfold(x, size, padding=size // 2)
    windows = windows.view(batch, groups, -1, size * size, height, width)
    return (maps.unsqueeze(2) * windows).sum(3).view(batch, -1, height, width)


def unfold_attention(query: Tensor, key: Tensor, value: Tensor, heads: int, size: int) -> Tensor:
    """Stand-alone self-attention as usually written: unfold and einsum; zeros beyond the border."""
    batch, channels, height, width = query.shape
    depth = channels // heads
    keys, values = (
        F.unfold(t, size, padding=size // 2).view(batch, heads, depth, -1, height, width)
        for t in (key, value)
    )
    queries = query.view(batch, heads, depth, height, width) * depth**-0.5
    scores = torch.einsum("bndhw,bndkhw->bnkhw", queries, keys)
    return torch.einsum("bnkhw,bndkhw->bndhw", scores.softmax(2), values).reshape(query.shape)


def involution_peers(size: int) -> dict[str, Callable[[], Peer]]:
    """Return the ways to compute `av` with a centred window."""
    window = Window.centred(size)

    def unfold(maps: Tensor, x: Tensor) -> Tensor:
        return unfold_involution(maps, x, size)

    return {
        "attnlab": lambda: Peer(lambda maps, x: av(maps, x, window)),
        "unfold": lambda: Peer(unfold),
        "unfold, compiled": lambda: Peer(_compiled(unfold)),
        "attnlab's torch form, compiled": lambda: Peer(
            _compiled(lambda maps, x: av(maps, x, window), plain=True)
        ),
    }


def attention_peers(heads: int, size: int) -> dict[str, Callable[[], Peer]]:
    """Return the ways to compute `local_attention` with a centred window."""
    window = Window.centred(size)

    def ours(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return local_attention(query, key, value, heads, window)

    def unfold(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return unfold_attention(query, key, value, heads, size)

    return {
        "attnlab": lambda: Peer(ours),
        "unfold": lambda: Peer(unfold),
        "unfold, compiled": lambda: Peer(_compiled(unfold)),
        "attnlab's torch form, compiled": lambda: Peer(_compiled(ours, plain=True)),
        "flex_attention": lambda: flex(heads, size),
        "NATTEN": lambda: natten(heads, size),
    }


def _compiled(function: Function, plain: bool = False) -> Function:
    """`function` through torch's compiler; `plain` without this package's own kernels."""
    if interpreting():
        raise NotHereError("Triton interprets, and the compiler needs it to compile")
    compiled: Function = torch.compile(function, dynamic=False)
    if not plain:
        return compiled

    def run(*tensors: Tensor) -> Tensor:
        with use_native(False):
            return compiled(*tensors)

    return run


def flex(heads: int, size: int) -> Peer:
    """torch's flex_attention with a mask of the neighbourhood, which leaves out what is outside."""
    from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

    attend = _compiled(cast("Function", flex_attention))
    masks: dict[tuple[int, int, torch.device], BlockMask] = {}
    reach = size // 2

    def mask_of(height: int, width: int, device: torch.device) -> BlockMask:
        def near(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            rows = (query // width - key // width).abs() <= reach
            return rows & ((query % width - key % width).abs() <= reach)

        key = (height, width, device)
        if key not in masks:
            tokens = height * width
            masks[key] = create_block_mask(near, None, None, tokens, tokens, device=str(device))
        return masks[key]

    shape: list[int] = []

    def prepare(*tensors: Tensor) -> tuple[Tensor, ...]:
        shape[:] = tensors[0].shape[2:]
        mask_of(shape[0], shape[1], tensors[0].device)
        return tuple(
            t.flatten(2).unflatten(1, (heads, -1)).transpose(2, 3).contiguous() for t in tensors
        )

    def run(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        mask = mask_of(shape[0], shape[1], query.device)
        return attend(query, key, value, block_mask=mask)

    def restore(out: Tensor) -> Tensor:
        return out.transpose(2, 3).flatten(1, 2).unflatten(2, tuple(shape))

    return Peer(run, prepare, restore)


def natten(heads: int, size: int) -> Peer:
    """NATTEN, whose window is moved inwards at the border instead of being cut."""
    if importlib.util.find_spec("natten") is None:
        raise NotHereError("not installed")
    attend = importlib.import_module("natten").na2d

    def prepare(*tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(
            t.unflatten(1, (heads, -1)).permute(0, 3, 4, 1, 2).contiguous() for t in tensors
        )

    def run(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attend(query, key, value, kernel_size=(size, size))

    def restore(out: Tensor) -> Tensor:
        return out.permute(0, 3, 4, 1, 2).flatten(1, 2)

    return Peer(run, prepare, restore)
