"""A convolution plus local attention with two learned coefficients, as one Evolution kernel.

X-volution (Chen et al., arXiv 2106.02253) adds the two and merges them for inference; the Evolution
paper sets itself apart from such sums. By linearity they are Evolution as well: the kernel of the
sum is the sum of the kernels. Ours uses exact local attention where X-volution approximates it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from attnlab.evolution.attention_layer import LocalAttention2d, Positional
from attnlab.evolution.forms import SharedKernel, SumKernel
from attnlab.evolution.operator import Operator
from attnlab.evolution.window import Pair, Window


class ConvolutionPlusAttention2d(Operator):
    """y = α · convolution(x) + β · attention(x) over the same window; α and β are learned.

    Both begin at `coefficients`. The window is centred, so an odd kernel keeps the size of the map.
    """

    scope = "window"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Pair = 3,
        heads: int = 4,
        positional: Positional | None = None,
        coefficients: tuple[float, float] = (0.5, 0.5),
        bias: bool = False,
    ) -> None:
        window = Window.centred(kernel_size, 1, 1, 2)
        super().__init__(in_channels, out_channels, window, bias=bias)
        self.attention = LocalAttention2d(in_channels, out_channels, kernel_size, heads, positional)
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels, *window.kernel_size))
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        self.coefficients = nn.Parameter(torch.tensor(coefficients))

    def kernel(self, x: Tensor) -> SumKernel:
        parts = (SharedKernel(self.weight, self.window), self.attention.kernel(x))
        return SumKernel(parts, self.coefficients)
