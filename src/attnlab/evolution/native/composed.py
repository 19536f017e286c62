"""Operators that are composed of several native calls: videos, and gradients of spanned maps.

A video (B, C, T, H, W) runs on the kernels of images, once for every pair of frames that meet: one
frame is planes that lie further apart, which the kernels take. Sums over frames are added up in the
output.

The maps of `spanned_av` are made in the kernel, a few rows at a time. Their gradients, and the maps
of videos, lie in a buffer for a few inputs: one that is used again costs no fresh pages, as those
of a batch would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attnlab.evolution._implementation import SpanCall, computing
from attnlab.evolution.window import Window

if TYPE_CHECKING:
    from attnlab.evolution.native.implementation import Native

FrameCall = Callable[[Tensor, Tensor, Tensor, bool], None]
"""Runs one pair of frames: output, first and second operand, whether to add."""


def av_frames(call: FrameCall, out: Tensor, maps: Tensor, x: Tensor, window: Window) -> None:
    """out[t] = Σ_k av(maps[k, t], x[t + k])"""
    parts = _by_tap(maps, window)
    for t in range(out.shape[2]):
        target, started = out[:, :, t], False
        for tap, frame in _read_by(t, x.shape[2], window):
            call(target, parts[:, :, tap, :, t], x[:, :, frame], started)
            started = True
        if not started:
            target.zero_()


def qk_frames(call: FrameCall, out: Tensor, q: Tensor, x: Tensor, window: Window) -> None:
    """out[k, t] = qk(q[t], x[t + k])"""
    parts = _by_tap(out, window)
    for t in range(q.shape[2]):
        inside = dict(_read_by(t, x.shape[2], window))
        for tap in range(window.kernel_size[0]):
            target = parts[:, :, tap, :, t]
            if tap in inside:
                call(target, q[:, :, t], x[:, :, inside[tap]], False)
            else:
                target.zero_()


def sc_frames(call: FrameCall, out: Tensor, maps: Tensor, y: Tensor, window: Window) -> None:
    """out[j] = Σ_k sc(maps[k, j - k], y[j - k])"""
    parts = _by_tap(maps, window)
    started = [False] * out.shape[2]
    for t in range(y.shape[2]):
        for tap, frame in _read_by(t, out.shape[2], window):
            call(out[:, :, frame], parts[:, :, tap, :, t], y[:, :, t], started[frame])
            started[frame] = True
    for frame, done in enumerate(started):
        if not done:
            out[:, :, frame].zero_()


def _by_tap(maps: Tensor, window: Window) -> Tensor:
    """(B, G, taps, T, H, W) as (B, G, K_t, K_h·K_w, T, H, W)."""
    return maps.unflatten(2, (window.kernel_size[0], -1))


def _read_by(t: int, frames: int, window: Window) -> Iterator[tuple[int, int]]:
    """The taps of output frame t that lie in the video, each with the frame it reads."""
    for tap in range(window.kernel_size[0]):
        frame = window.stride[0] * t + window.dilation[0] * tap - window.padding[0]
        if 0 <= frame < frames:
            yield tap, frame


_BUFFER_BYTES = 5 * 2**19
"""The size of a buffer for some inputs, at least one per thread: larger ones were slower."""


class _Images:
    """Maps of some images: as matrices (images, groups·taps, pixels), and as `av` takes them."""

    def __init__(self, call: SpanCall) -> None:
        features, weight = call.features, call.weight
        size = features.shape[2:]
        one = weight.shape[0] * size.numel() * weight.element_size()
        self.count = min(len(features), max(torch.get_num_threads(), _BUFFER_BYTES // one, 1))
        self.matrices = weight.new_empty(self.count, weight.shape[0], size.numel())
        self.maps = self.matrices.unflatten(2, size).unflatten(1, (call.groups, -1))

    def span(self, flat: Tensor, call: SpanCall) -> Tensor:
        """Return the maps of weight · flat (images, D, pixels) + bias."""
        count, bias = len(flat), call.bias
        matrices, weights = self.matrices[:count], call.weight.expand(count, -1, -1)
        if bias is None:
            torch.bmm(weights, flat, out=matrices)
        else:
            torch.baddbmm(bias.unsqueeze(1), weights, flat, out=matrices)
        return self.maps[:count]


def spanned_av_in_blocks(native: Native, call: SpanCall) -> Tensor:
    """Compute `spanned_av`: in one kernel, or for videos a few inputs at a time."""
    x, features = call.x, call.features
    out = x.new_empty(*x.shape[:2], *features.shape[2:])
    if features.dim() < 5:
        native.spanned_into("spanned_av", out, x, call)
        return out
    images = _Images(call)
    batches = (t.split(images.count) for t in (features.flatten(2), x, out))
    for flat, at, to in zip(*batches, strict=True):
        native.av_into(to, images.span(flat, call), at, call.window)
    return out


def span_gradients_in_blocks(native: Native, grad: Tensor, call: SpanCall) -> list[Tensor]:
    """Compute the gradients of `call.tensors`, a few inputs at a time."""
    features, x, weight = call.features, call.x, call.weight
    to_features, to_x = features.new_empty(features.shape), x.new_empty(x.shape)
    compute = computing(weight.dtype)
    to_weight = torch.zeros(weight.shape, dtype=compute)
    to_bias = torch.zeros(weight.shape[0], dtype=compute)
    made = features.dim() < 5
    if made:
        native.spanned_into("spanned_sc", to_x, grad, call)
    images = _Images(call)
    transposed = weight.t()
    operands = (features.flatten(2), x, grad, to_features.flatten(2), to_x)
    batches = (t.split(images.count) for t in operands)
    for flat, at, incoming, flat_to, to in zip(*batches, strict=True):
        matrices, maps = images.matrices[: len(flat)], images.maps[: len(flat)]
        if not made:
            native.sc_into(to, images.span(flat, call), incoming, call.window)
        native.qk_into(maps, incoming, at, call.window)
        torch.bmm(transposed.expand(len(flat), -1, -1), matrices, out=flat_to)
        for matrix, one in zip(matrices, flat, strict=True):
            if compute == weight.dtype:
                to_weight.addmm_(matrix, one.t())
            else:
                to_weight += torch.mm(matrix, one.t())
            to_bias += matrix.sum(1, dtype=compute)
    found = [to_features, to_x, to_weight.to(weight.dtype)]
    return found if call.bias is None else [*found, to_bias.to(call.bias.dtype)]
