"""The window of an operator: which input pixels an output pixel reads.

Output pixel (i, j) reads input pixel (s·i + d·u - p, s·j + d·v - p) for u, v in 0 .. K-1; pixels
outside the image count as zero. The paper writes this with centred offsets, which needs an odd K;
with an explicit padding any K works.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from attnlab._errors import InputError, OptionError

Pair = tuple[int, int]


def pair(name: str, value: int | tuple[int, int], least: int) -> Pair:
    """`value` as (vertical, horizontal), both at least `least`."""
    vertical, horizontal = (value, value) if isinstance(value, int) else value
    if vertical < least or horizontal < least:
        raise OptionError(f"Expected {name} to be at least {least} but got {value}.")
    return vertical, horizontal


class Window(NamedTuple):
    """Size, stride, dilation and zero padding, each as (vertical, horizontal)."""

    kernel_size: Pair
    stride: Pair = (1, 1)
    dilation: Pair = (1, 1)
    padding: Pair = (0, 0)

    @classmethod
    def of(
        cls,
        kernel_size: int | Pair,
        stride: int | Pair = 1,
        dilation: int | Pair = 1,
        padding: int | Pair = 0,
    ) -> Window:
        """A window from the arguments that `nn.Conv2d` takes."""
        return cls(
            pair("kernel_size", kernel_size, 1),
            pair("stride", stride, 1),
            pair("dilation", dilation, 1),
            pair("padding", padding, 0),
        )

    @classmethod
    def centred(
        cls, kernel_size: int | Pair, stride: int | Pair = 1, dilation: int | Pair = 1
    ) -> Window:
        """The window of odd size around each s-th pixel; an H × W map gives ⌈H/s⌉ × ⌈W/s⌉."""
        size = pair("kernel_size", kernel_size, 1)
        if size[0] % 2 == 0 or size[1] % 2 == 0:
            raise OptionError(
                f"Expected an odd kernel_size but got {kernel_size}: a centred window has a middle "
                f"pixel. Use {size[0] | 1}, or EvolutionConv2d with an explicit padding."
            )
        dilated = pair("dilation", dilation, 1)
        around = (dilated[0] * (size[0] // 2), dilated[1] * (size[1] // 2))
        return cls(size, pair("stride", stride, 1), dilated, around)

    @property
    def taps(self) -> int:
        """Number of input pixels that one output pixel reads."""
        return self.kernel_size[0] * self.kernel_size[1]

    @property
    def is_centred(self) -> bool:
        """Whether the middle tap of output (i, j) is input (s·i, s·j)."""
        return all(
            size % 2 == 1 and padding == dilation * (size // 2)
            for size, dilation, padding in zip(
                self.kernel_size, self.dilation, self.padding, strict=True
            )
        )

    def output_size(self, height: int, width: int) -> Pair:
        """(H_out, W_out) of an H × W input."""
        out = tuple(
            (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
            for size, kernel, stride, dilation, padding in zip((height, width), *self, strict=True)
        )
        if out[0] < 1 or out[1] < 1:
            raise InputError(
                f"Expected a map at least as large as the window but got {height} × {width} with "
                f"kernel_size {self.kernel_size}, dilation {self.dilation} and padding "
                f"{self.padding}. Enlarge the map or the padding."
            )
        return out[0], out[1]

    def shifts(self, height: int, width: int) -> Iterator[tuple[slice, slice]]:
        """For each tap, in row order, the rows and columns of the zero-padded input it reads.

        `height` and `width` are those of the output.
        """
        for u in range(self.kernel_size[0]):
            top = u * self.dilation[0]
            rows = slice(top, top + self.stride[0] * (height - 1) + 1, self.stride[0])
            for v in range(self.kernel_size[1]):
                left = v * self.dilation[1]
                yield (
                    rows,
                    slice(left, left + self.stride[1] * (width - 1) + 1, self.stride[1]),
                )

    def pad(self) -> tuple[int, int, int, int]:
        """The padding as `F.pad` takes it: left, right, top, bottom."""
        return self.padding[1], self.padding[1], self.padding[0], self.padding[0]
