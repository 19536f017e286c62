"""Whether the kernels of a device are right, and repeat: against plain torch in float64 on the CPU.

That form is tested against unfold, torch's own attention and finite differences. Shapes are small
and have every edge: one row, one column, more taps than pixels, strides, dilations, one axis and
three, blocks that are not full. The last is large enough for many programs, and its blocks are
those that a GPU's timing chooses. Each case is computed several times; where that gives other bits,
two programs wrote one number.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from attnlab.evolution._kernels import kernel_for, use_native
from attnlab.evolution.attention import Boundary, local_attention
from attnlab.evolution.primitives import av, qk, sc, spanned_av
from attnlab.evolution.window import Window

TOLERANCES = {
    torch.float32: 1e-5,
    torch.float64: 1e-12,
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
}
"""Largest error of a tensor of results, relative to its largest number (1 at least)."""
ALL = tuple(TOLERANCES)


class Edge(NamedTuple):
    """A shape at which a kernel could be wrong, with the types to try it in."""

    size: tuple[int, ...]
    window: Window
    dtypes: tuple[torch.dtype, ...] = (torch.float32,)
    depth: int = 2
    """Channels of a head for each axis of space; a group has as many."""
    timed: bool = False
    """Whether a GPU times block sizes first, as it does for users: most of the time goes there."""


EDGES: Mapping[str, Edge] = {
    "one row": Edge((1, 19), Window.centred((1, 3), 1, (1, 2))),
    "one column": Edge((18, 1), Window.centred((3, 1), 2)),
    "more taps than pixels": Edge((2, 2), Window.centred(5)),
    "strided": Edge((5, 7), Window.centred(3, (2, 3)), ALL),
    "dilated": Edge((5, 8), Window.centred(3, 1, 2)),
    "sequence": Edge((21,), Window.centred((5,), 2)),
    "video": Edge((2, 3, 5), Window.centred((3, 1, 3), (1, 1, 2))),
    "many blocks": Edge(
        (40, 37), Window.centred(7), (torch.float32, torch.bfloat16), depth=16, timed=True
    ),
}
Function = Callable[..., Tensor]


@dataclass(frozen=True)
class Checked:
    """One operator with its gradients on one shape and type."""

    operator: str
    edge: str
    dtype: str
    kernel: str
    error: float
    tolerance: float
    repeats: bool
    """Whether every run gave the same bits."""

    @property
    def right(self) -> bool:
        return self.error <= self.tolerance and self.repeats  # what is not a number is not


def check(
    device: torch.device, edges: Mapping[str, Edge] = EDGES, runs: int = 5
) -> Iterator[Checked]:
    """Every operator on every edge and its types, one after the other."""
    for name, edge in edges.items():
        for dtype in edge.dtypes:
            kernel = kernel_for(device.type, dtype).kernel
            for operator, (function, inputs) in cases(edge).items():
                with contextlib.nullcontext() if edge.timed else _untimed(kernel):
                    error, repeats = _try(function, [t.to(dtype) for t in inputs], device, runs)
                stored = str(dtype).removeprefix("torch.")
                yield Checked(operator, name, stored, kernel, error, TOLERANCES[dtype], repeats)


def _untimed(kernel: str) -> AbstractContextManager[None]:
    if kernel != "triton":
        return contextlib.nullcontext()
    from attnlab.evolution._triton.tuning import fixed_blocks

    return fixed_blocks()


def cases(edge: Edge) -> dict[str, tuple[Function, list[Tensor]]]:
    """Each operator and random operands for it, in float64, the same every time."""
    size, window = edge.size, edge.window
    made = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=made, dtype=torch.float64)

    out, groups, heads, depth = window.output_size(*size), 2, 2, edge.depth * window.axes
    channels = heads * depth
    maps, x = random(2, groups, window.taps, *out), random(2, channels, *size)
    y, value = random(2, channels, *out), random(2, 6, *size)
    bias = random(heads, window.taps)
    relative = [random(heads, edge.depth, length) for length in window.kernel_size]
    weight, offsets = random(groups * window.taps, 3), random(groups * window.taps)
    features = random(2, 3, *out)

    def attention(boundary: Boundary) -> Function:
        return lambda q, k, v, b, *r: local_attention(
            q, k, v, heads, window, bias=b, relative=r, boundary=boundary
        )

    return {
        "av": (lambda a, x: av(a, x, window), [maps, x]),
        "qk": (lambda q, x: qk(q, x, groups, window), [y, x]),
        "sc": (lambda a, y: sc(a, y, size, window), [maps, y]),
        "spanned_av": (
            lambda f, x, w, b: spanned_av(f, x, w, b, groups, window),
            [features, x, weight, offsets],
        ),
        "attention": (
            lambda q, k, v: local_attention(q, k, v, heads, window),
            [y, x, value],
        ),
        "attention, positions": (attention("mask"), [y, x, value, bias, *relative]),
        "attention, zero border": (attention("zero"), [y, x, value, bias, *relative]),
    }


def _try(
    function: Function, inputs: list[Tensor], device: torch.device, runs: int
) -> tuple[float, bool]:
    """The largest relative error of result and gradients, and whether all runs agree."""
    with use_native(False):
        expected = _results(function, [t.double() for t in inputs], inputs[0].dtype)
    here = [t.to(device) for t in inputs]
    found = _results(function, here, here[0].dtype)
    again = [_results(function, here, here[0].dtype) for _ in range(runs - 1)]
    error = max(
        float((got.double().cpu() - wanted).abs().max() / wanted.abs().max().clamp(min=1))
        if got.isfinite().all()
        else float("inf")
        for got, wanted in zip(found, expected, strict=True)
    )
    same = all(torch.equal(a, b) for run in again for a, b in zip(found, run, strict=True))
    return error, same


def _results(function: Function, inputs: list[Tensor], stored: torch.dtype) -> list[Tensor]:
    """Result and gradients; the gradient that goes in is one that `stored` can hold."""
    leaves = [t.detach().requires_grad_() for t in inputs]
    out = function(*leaves)
    gradient = torch.linspace(-1, 1, out.numel()).to(stored).view_as(out)
    return [out.detach(), *torch.autograd.grad(out, leaves, gradient.to(out))]
