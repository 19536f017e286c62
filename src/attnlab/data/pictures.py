"""Pictures as tensors, and back."""

from __future__ import annotations

import io

import numpy as np
import torch
from PIL import Image
from torch import Tensor


def scaled(picture: Image.Image, size: int) -> Image.Image:
    """With its short side scaled to `size`."""
    factor = size / min(picture.size)
    sides = [max(size, round(side * factor)) for side in picture.size]
    return picture.resize((sides[0], sides[1]), Image.Resampling.BICUBIC)


def as_tensor(picture: Image.Image) -> Tensor:
    """(3, H, W), pixels 0 to 1."""
    return torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1).float() / 255


def png(pixels: Tensor) -> bytes:
    """A picture (3, H, W), pixels 0 to 1, as a PNG file."""
    rounded = (255 * pixels.detach().cpu().clamp(0, 1)).round().byte().permute(1, 2, 0)
    buffer = io.BytesIO()
    Image.fromarray(rounded.numpy()).save(buffer, "PNG")
    return buffer.getvalue()
