"""Any known layer as an explicit Evolution kernel: the paper's claims, executable."""

from __future__ import annotations

from torch import Tensor, nn

from attnlab._errors import OptionError
from attnlab.evolution.forms import Kernel, SharedKernel
from attnlab.evolution.operator import Operator
from attnlab.evolution.reference import evolve
from attnlab.evolution.window import Window


class Evolution(nn.Module):
    """y = Ev(F(x), x) + constant, evaluated by the written-out formula."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def form(self, x: Tensor) -> Kernel:
        """F(x) in factored form."""
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
