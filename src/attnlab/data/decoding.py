"""From the content of an image file to the pixels that a network is trained on.

Pillow decodes with libjpeg-turbo, only the part that is used is copied out, and torch resizes it on
bytes, four times as fast as Pillow and at most two levels of 255 apart from it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from attnlab._errors import OptionError
from attnlab.data.pictures import eight_bits, opened, picture_bytes

Policy = Callable[[Image.Image], Image.Image]
"""Changes an image of Pillow's, at random."""
_SCALE = (0.08, 1.0)
_RATIO = (3 / 4, 4 / 3)
"""Area and aspect of a random part, as in the training of Inception and of all ResNets since."""


@contextmanager
def drawing(seed: int) -> Iterator[None]:
    """Let torch draw from `seed` on the CPU, and go on as before afterwards.

    `torch.random.fork_rng` with `torch.manual_seed` does the same on all devices and takes 0.12 ms,
    a tenth of the time of an image; this takes 0.01 ms.
    """
    before = torch.default_generator.get_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.default_generator.set_state(before)


@contextmanager
def drawing_all(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Let torch, numpy and Python draw from `seed`, and go on as before afterwards: timm's
    augmentation draws from all three."""
    own, numpys = random.getstate(), np.random.get_state()
    devices = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(own)
            np.random.set_state(numpys)


def policy_of(name: str, size: tuple[int, int], mean: Sequence[float]) -> Policy:
    """timm's automatic augmentation by its words, with what its own training gives it, or
    torchvision's TrivialAugment."""
    if name == "trivial":
        from torchvision.transforms import v2

        trivial: Policy = v2.TrivialAugmentWide()
        return trivial
    from timm.data import auto_augment as timms

    grey = tuple(min(255, round(255 * each)) for each in mean)
    settings = {"translate_const": int(min(size) * 0.45), "img_mean": grey}
    kinds = {"rand": timms.rand_augment_transform, "augmix": timms.augment_and_mix_transform}
    make = kinds.get(name.split("-")[0], timms.auto_augment_transform)
    try:
        found: Policy = make(name, settings)
    except (AssertionError, ValueError, KeyError, IndexError) as error:
        raise OptionError(
            f"timm has no automatic augmentation {name!r} ({error}). Expected its own words, such "
            f"as 'rand-m9-mstd0.5-inc1', 'original', 'v0' or '3a', or 'trivial'."
        ) from None
    return found


def augmented_bytes(policy: Policy, pixels: Tensor) -> Tensor:
    """An image of bytes (3, H, W), changed by a policy."""
    return picture_bytes(policy(Image.fromarray(pixels.permute(1, 2, 0).numpy())))


def whole_picture(content: bytes, name: str) -> Image.Image:
    """An image with 8 bits per channel, for transforms of Pillow's images."""
    return opened(content, lambda image: eight_bits(image, repr(name)).convert("RGB"), name)


def random_part(content: bytes, name: str, size: tuple[int, int], flip: bool) -> Tensor:
    """A random part of random aspect, resized to `size`, mirrored half of the time if `flip`;
    bytes (3, H, W). Draws from torch's generator what torchvision's transforms draw."""
    return opened(content, lambda image: _random_part(image, name, size, flip), name)


def _random_part(image: Image.Image, name: str, size: tuple[int, int], flip: bool) -> Tensor:
    from torchvision.transforms import RandomResizedCrop

    # Of the header only: an image is decoded when its pixels are asked for.
    top, left, height, width = RandomResizedCrop.get_params(image, list(_SCALE), list(_RATIO))
    mirrored = flip and bool(torch.rand(1) < 0.5)
    shrunk = _shrunk(image, min(height / size[0], width / size[1]))
    across, down = round(left * shrunk), round(top * shrunk)
    wide, high = max(1, round(width * shrunk)), max(1, round(height * shrunk))
    part = image.crop((across, down, across + wide, down + high))
    pixels = picture_bytes(eight_bits(part, repr(name)).convert("RGB"))
    if (high, wide) != size:
        # On bytes whose colours lie side by side, as they do here, torch is four times as fast as
        # Pillow.
        pixels = F.interpolate(pixels[None], size=size, mode="bilinear", antialias=True)[0]
    return pixels.flip(-1) if mirrored else pixels


def _shrunk(image: Image.Image, larger: float) -> float:
    """Have a JPEG decoded at a half, a quarter or an eighth of its size, which is less work, if the
    part that is cut out is so much `larger` than what is made of it; by which factor it is. The
    part's edges then lie on whole pixels of the smaller image."""
    if image.format != "JPEG" or larger < 2:
        return 1.0
    width, height = image.size
    image.draft(None, (int(width / larger), int(height / larger)))
    return image.size[0] / width
