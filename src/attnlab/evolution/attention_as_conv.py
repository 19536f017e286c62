"""Multi-head attention that computes a given convolution (Cordonnier et al., ICLR 2020).

A K×K convolution takes K² heads. Head h attends to one offset Δ_h: its scores are
v_h · r_δ = -α·|δ - Δ_h|² + const, with the quadratic encoding r_δ = (|δ|², δ₁, δ₂) and
v_h = -α·(1, -2Δ₁, -2Δ₂); queries and keys are zero. As α grows the softmax becomes one at δ = Δ_h.

Two things the paper's Eq. 27 leaves out: scores of 0 and 1 are not enough (softmax of them gives
0.254 for K = 3), and attention cannot emit the zeros of a padded convolution at the border, so the
input is padded before the attention.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab._errors import OptionError
from attnlab.evolution.attention import local_attention
from attnlab.evolution.window import Window


def quadratic_scores(kernel_size: int, sharpness: float) -> Tensor:
    """(heads, taps) = (K², K²) scores in float64: head h is largest at tap h."""
    middle = kernel_size // 2
    offsets = torch.cartesian_prod(
        *[torch.arange(-middle, middle + 1, dtype=torch.float64) for _ in range(2)]
    )
    encoding = torch.cat((offsets.square().sum(1, keepdim=True), offsets), dim=1)
    vectors = -sharpness * torch.cat((torch.ones(len(offsets), 1), -2 * offsets), dim=1)
    return vectors @ encoding.t()


class AttentionAsConvolution(nn.Module):
    """K² heads with positional scores only; built by `attention_as_conv`."""

    def __init__(self, convolution: nn.Conv2d, sharpness: float) -> None:
        super().__init__()
        size = convolution.kernel_size[0]
        weight = _dense_weight(convolution)
        self.heads = size * size
        self.out_channels = weight.shape[0]
        self.stride = convolution.stride
        assert not isinstance(convolution.padding, str)
        self.padding = convolution.padding
        self.window = Window.centred(size, 1, convolution.dilation[0])
        # Head h has W_V = weight[:, :, tap h] and W_O = identity, so that the heads are summed.
        per_head = weight.permute(2, 3, 0, 1).flatten(0, 2)
        self.value_weight = nn.Parameter(per_head.detach().clone())
        self.bias = (
            None if convolution.bias is None else nn.Parameter(convolution.bias.detach().clone())
        )
        self.register_buffer("scores", quadratic_scores(size, sharpness).to(weight.dtype))

    def forward(self, x: Tensor) -> Tensor:
        top, left = self.padding
        padded = F.pad(x, (left, left, top, top))
        value = F.conv2d(padded, self.value_weight[:, :, None, None])
        nothing = x.new_zeros(x.shape[0], self.heads, *padded.shape[2:])
        heads = local_attention(
            nothing, nothing, value, self.heads, self.window, bias=self.get_buffer("scores")
        )
        out = heads.unflatten(1, (self.heads, self.out_channels)).sum(1)
        top, left = self.window.padding
        inner = out[..., top : out.shape[2] - top, left : out.shape[3] - left]
        inner = inner[..., :: self.stride[0], :: self.stride[1]]
        return inner if self.bias is None else inner + self.bias[:, None, None]


def attention_as_conv(convolution: nn.Conv2d, sharpness: float = 50.0) -> AttentionAsConvolution:
    """Local multi-head attention that equals `convolution` up to exp(-sharpness)."""
    sizes, dilations = set(convolution.kernel_size), set(convolution.dilation)
    if len(sizes) > 1 or len(dilations) > 1 or convolution.kernel_size[0] % 2 == 0:
        raise OptionError(
            "Expected a square kernel of odd size with one dilation but got kernel_size="
            f"{convolution.kernel_size}, dilation={convolution.dilation}."
        )
    if convolution.padding_mode != "zeros" or isinstance(convolution.padding, str):
        raise OptionError(
            "Expected zero padding given as numbers but got "
            f"padding={convolution.padding!r}, padding_mode={convolution.padding_mode!r}."
        )
    return AttentionAsConvolution(convolution, sharpness)


def _dense_weight(convolution: nn.Conv2d) -> Tensor:
    """The weight with groups written out as zeros: (D_out, D_in, K, K)."""
    weight, groups = convolution.weight, convolution.groups
    if groups == 1:
        return weight
    blocks = weight.unflatten(0, (groups, -1))
    dense = weight.new_zeros(groups, blocks.shape[1], groups, *weight.shape[1:])
    for group in range(groups):
        dense[group, :, group] = blocks[group]
    return dense.flatten(2, 3).flatten(0, 1)
