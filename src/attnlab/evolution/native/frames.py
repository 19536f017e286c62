"""The primitives on videos: the kernels of images, once for every pair of frames that meet.

Of a video (B, C, T, H, W) one frame is planes that lie further apart, which the kernels take. Sums
over frames are added up in the output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor

from attnlab.evolution.window import Window

Call = Callable[[Tensor, Tensor, Tensor, bool], None]
"""Runs one pair of frames: output, first and second operand, whether to add."""


def av_frames(call: Call, out: Tensor, maps: Tensor, x: Tensor, window: Window) -> None:
    """out[t] = Σ_k av(maps[k, t], x[t + k])"""
    parts = _by_tap(maps, window)
    for t in range(out.shape[2]):
        target, started = out[:, :, t], False
        for tap, frame in _read_by(t, x.shape[2], window):
            call(target, parts[:, :, tap, :, t], x[:, :, frame], started)
            started = True
        if not started:
            target.zero_()


def qk_frames(call: Call, out: Tensor, q: Tensor, x: Tensor, window: Window) -> None:
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


def sc_frames(call: Call, out: Tensor, maps: Tensor, y: Tensor, window: Window) -> None:
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
