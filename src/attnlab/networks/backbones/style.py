"""The usual network of fast style transfer (Johnson et al., ECCV 2016; Ulyanov et al., 2016).

A 9×9 convolution, two that halve the size, residual blocks, twice nearest enlargement and a
convolution, a 9×9 convolution to three channels. Reflected borders; norm and ReLU after every
convolution but the last, and a norm without ReLU after a block's second one. With width 32 and
five blocks it is the network of the public example, except that a sigmoid makes the picture (0 to
1) where that has none.

With batch norm a picture depends, in training, on the others of its batch; with instance norm it
never does. ASR's authors compare the two, and batch norm with ASR after every norm, in their
supplement (G).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab._errors import InputError, OptionError, unknown_name

SMALLEST = 16
"""The least height and width: the reflected border of the 9×9 convolutions and of the smallest
map."""

NORMS: dict[str, Callable[[int], nn.Module]] = {
    "batch": nn.BatchNorm2d,
    "instance": lambda channels: nn.InstanceNorm2d(channels, affine=True),
}


class FastStyle(nn.Module):
    """Normalised images → pictures with pixels 0 to 1, of the same height and width.

    Args:
        width: channels of the first convolution; 2 and 4 times as many inside.
        blocks: residual blocks.
        norm: `batch` or `instance`.
    """

    def __init__(self, width: int = 32, blocks: int = 5, norm: str = "instance") -> None:
        super().__init__()
        if width < 1 or blocks < 0:
            raise OptionError(
                f"Expected width to be at least 1 and blocks at least 0 but got {width} and "
                f"{blocks}."
            )
        if norm not in NORMS:
            raise unknown_name("norm of FastStyle", norm, NORMS)
        build = NORMS[norm]
        self.input_size = (3, 96, 96)
        self.down = nn.Sequential(
            _Layer(3, width, 9, build),
            _Layer(width, 2 * width, 3, build, stride=2),
            _Layer(2 * width, 4 * width, 3, build, stride=2),
        )
        self.blocks = nn.Sequential(*(_Block(4 * width, build) for _ in range(blocks)))
        self.up = nn.Sequential(
            _Layer(4 * width, 2 * width, 3, build, enlarge=True),
            _Layer(2 * width, width, 3, build, enlarge=True),
        )
        self.last = _reflected(width, 3, 9)

    @property
    def attention_sites(self) -> tuple[str, ...]:
        """The sites after every norm."""
        return tuple(
            name
            for name, module in self.named_modules()
            if isinstance(module, nn.BatchNorm2d | nn.InstanceNorm2d)
        )

    def forward(self, images: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        if min(height, width) < SMALLEST:
            raise InputError(
                f"FastStyle: expected images of at least {SMALLEST}×{SMALLEST} but got "
                f"{height}×{width}. Enlarge them first."
            )
        x = self.last(self.up(self.blocks(self.down(images))))
        # Halved twice, rounded up, and doubled twice: up to three rows and columns too many.
        return torch.sigmoid(x[..., :height, :width])


class _Layer(nn.Module):
    """Convolution, norm, ReLU; on the image enlarged twice where asked."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        size: int,
        norm: Callable[[int], nn.Module],
        stride: int = 1,
        enlarge: bool = False,
    ) -> None:
        super().__init__()
        self.conv = _reflected(inputs, outputs, size, stride)
        self.norm = norm(outputs)
        self.relu = nn.ReLU()
        self.enlarge = enlarge

    def forward(self, x: Tensor) -> Tensor:
        if self.enlarge:
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
        y: Tensor = self.relu(self.norm(self.conv(x)))
        return y


class _Block(nn.Module):
    """x + norm(conv(relu(norm(conv(x)))))."""

    def __init__(self, channels: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.conv1 = _reflected(channels, channels, 3)
        self.norm1 = norm(channels)
        self.relu = nn.ReLU()
        self.conv2 = _reflected(channels, channels, 3)
        self.norm2 = norm(channels)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        return x + y


def _reflected(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, padding_mode="reflect")
