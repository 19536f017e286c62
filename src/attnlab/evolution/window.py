"""The window of an operator: which input pixels an output pixel reads.

Along each axis, output i reads input s·i + d·u - p for u in 0 .. K-1; pixels outside the image
count as zero. The paper writes this with centred offsets, which needs an odd K; with an explicit
padding any K works. A window has one axis (a sequence), two (an image) or three (a video).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from types import EllipsisType
from typing import NamedTuple

from torch import Tensor

from attnlab._errors import InputError, OptionError

Pair = tuple[int, int]
Sizes = tuple[int, ...]
"""One number for each axis of space."""
AXES = (1, 2, 3)


def sizes(name: str, value: int | Sizes, least: int, axes: int) -> Sizes:
    """`value` for each of `axes` axes, all at least `least`."""
    each = (value,) * axes if isinstance(value, int) else tuple(value)
    if len(each) != axes:
        raise OptionError(
            f"Expected {name} to be one number or {axes} (one per axis of the window) but got "
            f"{value}."
        )
    if min(each) < least:
        raise OptionError(f"Expected {name} to be at least {least} but got {value}.")
    return each


def every(x: Tensor, stride: Sizes) -> Tensor:
    """Each s-th pixel of (B, C, *size)."""
    return x[(slice(None), slice(None), *(slice(None, None, step) for step in stride))]


def _axes(kernel_size: int | Sizes, axes: int) -> int:
    """A tuple says how many axes there are; a number alone means `axes`."""
    found = axes if isinstance(kernel_size, int) else len(kernel_size)
    if found not in AXES:
        raise OptionError(f"Expected a window of 1, 2 or 3 axes but got {found}.")
    return found


class Window(NamedTuple):
    """Size, stride, dilation and zero padding, each with one number per axis."""

    kernel_size: Sizes
    stride: Sizes
    dilation: Sizes
    padding: Sizes

    @classmethod
    def of(
        cls,
        kernel_size: int | Sizes,
        stride: int | Sizes = 1,
        dilation: int | Sizes = 1,
        padding: int | Sizes = 0,
        axes: int = 2,
    ) -> Window:
        """A window from the arguments that `nn.Conv2d` takes.

        `axes` counts where `kernel_size` is one number; a tuple has its own.
        """
        axes = _axes(kernel_size, axes)
        return cls(
            sizes("kernel_size", kernel_size, 1, axes),
            sizes("stride", stride, 1, axes),
            sizes("dilation", dilation, 1, axes),
            sizes("padding", padding, 0, axes),
        )

    @classmethod
    def centred(
        cls,
        kernel_size: int | Sizes,
        stride: int | Sizes = 1,
        dilation: int | Sizes = 1,
        axes: int = 2,
    ) -> Window:
        """The window of odd size around each s-th pixel; an H × W map gives ⌈H/s⌉ × ⌈W/s⌉."""
        axes = _axes(kernel_size, axes)
        size = sizes("kernel_size", kernel_size, 1, axes)
        if any(length % 2 == 0 for length in size):
            raise OptionError(
                f"Expected an odd kernel_size but got {kernel_size}: a centred window has a middle "
                f"pixel. Use {size[0] | 1}, or EvolutionConv2d with an explicit padding."
            )
        dilated = sizes("dilation", dilation, 1, axes)
        around = tuple(d * (k // 2) for d, k in zip(dilated, size, strict=True))
        return cls(size, sizes("stride", stride, 1, axes), dilated, around)

    @classmethod
    def from_flat(cls, numbers: Sequence[int]) -> Window:
        """The window from the list of integers that torch operators are given."""
        axes = len(numbers) // 4
        return cls(*(tuple(numbers[i * axes : (i + 1) * axes]) for i in range(4)))

    def flat(self) -> list[int]:
        """All numbers in one list: sizes, strides, dilations, paddings."""
        return [number for part in self for number in part]

    @property
    def axes(self) -> int:
        """Number of axes of space."""
        return len(self.kernel_size)

    @property
    def taps(self) -> int:
        """Number of input pixels that one output pixel reads."""
        return math.prod(self.kernel_size)

    @property
    def is_centred(self) -> bool:
        """Whether the middle tap of output i is input s·i."""
        return all(
            size % 2 == 1 and padding == dilation * (size // 2)
            for size, dilation, padding in zip(
                self.kernel_size, self.dilation, self.padding, strict=True
            )
        )

    def output_size(self, *size: int) -> Sizes:
        """The size of the output for an input of `size`: (H_out, W_out) for an H × W map."""
        out = tuple(
            (length + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
            for length, kernel, stride, dilation, padding in zip(size, *self, strict=True)
        )
        if min(out) < 1:
            raise InputError(
                f"Expected a map at least as large as the window but got "
                f"{' × '.join(map(str, size))} with kernel_size {self.kernel_size}, dilation "
                f"{self.dilation} and padding {self.padding}. Enlarge the map or the padding."
            )
        return out

    def shifts(self, *out_size: int) -> Iterator[tuple[EllipsisType | slice, ...]]:
        """Yield, for each tap, the last axis fastest, the part of the zero-padded input that it
        reads.

        An index of a tensor whose last axes are those of the window; `out_size` is the output's.
        """
        each_axis = (
            [
                slice(u * dilation, u * dilation + stride * (length - 1) + 1, stride)
                for u in range(kernel)
            ]
            for length, kernel, stride, dilation in zip(out_size, *self[:3], strict=True)
        )
        return itertools.product((...,), *each_axis)

    def pad(self) -> list[int]:
        """The padding as `F.pad` takes it: the last axis first, before and after."""
        return [around for padding in reversed(self.padding) for around in (padding, padding)]
