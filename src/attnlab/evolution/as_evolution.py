"""The Evolution formula, written out, and any known layer as an explicit kernel of it: the paper's
claims, executable. This is the reference of every operator in this package.

    Y[i,j,m] = Σ_{u,v} Σ_{n<N} X[s·i + d·u - p, s·j + d·v - p, t(m)·N + n] · W[i,j,u,v,n,m]
    t(m) = ⌊m·G / D_out⌋,  N = D_in / G

This is Eq. 14 of the paper, corrected (see docs/explanation/corrections.md): W lives on output
positions, the window index is the kernel index, and t(m) is defined for every G that divides both
numbers of channels. For small maps and float64; nothing here is fast.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab._errors import InputError, OptionError
from attnlab.evolution.forms import Kernel, SharedKernel
from attnlab.evolution.operator import Operator
from attnlab.evolution.window import Sizes, Window


def evolve(
    x: Tensor,
    kernel: Tensor,
    *,
    groups: int = 1,
    stride: int | Sizes = 1,
    dilation: int | Sizes = 1,
    padding: int | Sizes = 0,
) -> Tensor:
    """Apply the materialised Evolution kernel W[i,j,u,v,n,m] to `x` (B, D_in, H, W).

    `kernel` is (H_out, W_out, K_h, K_w, D_in/groups, D_out), the same for all inputs, or has a
    leading batch axis. Sequences and videos have one and three axes in the place of two.
    """
    axes = x.dim() - 2
    _check_axes(x, kernel, axes)
    if kernel.dim() == 2 * axes + 2:
        kernel = kernel.unsqueeze(0)
    window = Window.of(tuple(kernel.shape[1 + axes : 1 + 2 * axes]), stride, dilation, padding)
    out_size = window.output_size(*x.shape[2:])
    _check_channels(x, kernel, groups, window)
    (batch, channels), out_channels = x.shape[:2], kernel.shape[-1]
    padded = F.pad(x, window.pad()).unflatten(1, (groups, channels // groups))
    weight = kernel.unflatten(-1, (groups, out_channels // groups))
    weight = weight.flatten(1 + axes, 2 * axes)
    out = x.new_zeros(batch, groups, out_channels // groups, *out_size)
    for tap, shift in enumerate(window.shifts(*out_size)):
        here = weight.select(1 + axes, tap)
        out = out + torch.einsum("bgn...,b...ngm->bgm...", padded[shift], here)
    return out.flatten(1, 2)


def _check_channels(x: Tensor, kernel: Tensor, groups: int, window: Window) -> None:
    (batch, channels), out_channels = x.shape[:2], kernel.shape[-1]
    if channels % groups or out_channels % groups:
        raise InputError(
            f"Expected groups to divide the {channels} input and {out_channels} output channels "
            f"but got groups={groups}."
        )
    out_size = window.output_size(*x.shape[2:])
    expected = (*out_size, *window.kernel_size, channels // groups, out_channels)
    if kernel.shape[0] not in (1, batch) or tuple(kernel.shape[1:]) != expected:
        raise InputError(
            f"Expected a kernel of shape {expected}, with or without a leading batch axis of "
            f"{batch}, but got {tuple(kernel.shape)}."
        )


def _check_axes(x: Tensor, kernel: Tensor, axes: int) -> None:
    letters = {1: "i,u", 2: "i,j,u,v", 3: "h,i,j,u,v,w"}
    if axes in letters and kernel.dim() in (2 * axes + 2, 2 * axes + 3):
        return
    if axes not in letters or kernel.dim() in (6, 7):
        raise InputError(f"Expected x of shape (B, C, H, W) but got {tuple(x.shape)}.")
    raise InputError(
        f"Expected a kernel W[{letters[axes]},n,m] with {2 * axes + 2} axes, or {2 * axes + 3} "
        f"with a leading batch axis, but got shape {tuple(kernel.shape)}."
    )


class Evolution(nn.Module):
    """y = Ev(F(x), x) + constant, evaluated by the written-out formula."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def form(self, x: Tensor) -> Kernel:
        """Return F(x) in factored form."""
        if isinstance(self.module, Operator):
            return self.module.kernel(x)
        assert isinstance(self.module, nn.Conv2d)
        return SharedKernel(self.module.weight, _window(self.module), self.module.groups)

    def kernel(self, x: Tensor) -> Tensor:
        """F(x) written out: W as (B or 1, H_out, W_out, K_h, K_w, D_in/G, D_out)."""
        return self.form(x).dense(x)

    def forward(self, x: Tensor) -> Tensor:
        form = self.form(x)
        _, stride, dilation, padding = form.window
        out = evolve(
            x,
            form.dense(x),
            groups=form.groups,
            stride=stride,
            dilation=dilation,
            padding=padding,
        )
        bias = self.module.bias
        if not isinstance(bias, Tensor):
            return out
        return out + bias[(..., *(None,) * form.window.axes)]


def as_evolution(module: nn.Module) -> Evolution:
    """`module` as an Evolution: an `nn.Conv2d` with any groups, or one of this package's operators.

    The result computes the same by the written-out formula, and `.kernel(x)` is the kernel: for
    attention with heads, positional encodings and output projection absorbed.
    """
    if isinstance(module, nn.Conv2d):
        _window(module)
    elif not isinstance(module, Operator):
        raise OptionError(
            f"Expected an nn.Conv2d or an operator of attnlab.evolution but got "
            f"{type(module).__name__}."
        )
    return Evolution(module)


def _window(convolution: nn.Conv2d) -> Window:
    if convolution.padding_mode != "zeros":
        raise OptionError(
            "An Evolution reads zeros outside the image, so padding_mode must be 'zeros' but is "
            f"{convolution.padding_mode!r}. Pad the input yourself."
        )
    (size_h, size_w), (dilation_h, dilation_w) = convolution.kernel_size, convolution.dilation
    padding = convolution.padding
    if padding == "valid":
        padding = (0, 0)
    elif padding == "same":
        if dilation_h * (size_h - 1) % 2 or dilation_w * (size_w - 1) % 2:
            raise OptionError("padding='same' is one-sided for this kernel; give it as numbers.")
        padding = (dilation_h * (size_h - 1) // 2, dilation_w * (size_w - 1) // 2)
    assert not isinstance(padding, str)
    stride = (convolution.stride[0], convolution.stride[1])
    return Window.of((size_h, size_w), stride, (dilation_h, dilation_w), (padding[0], padding[1]))
