"""How an image becomes an input of a network, and what libraries say about it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import nn

from attnlab._errors import OptionError
from attnlab.residuals.example import example_input

Interpolation = Literal["bilinear", "bicubic"]
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


# A mean of pixels lies among them; one of 0 to 255 must be divided by 255. A standard deviation of
# 1/255 is how networks for pixels up to 255 are described, and 1 is none. NaN fails comparisons.
_RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "mean": (lambda value: 0 <= value <= 1, "from 0 to 1"),
    "std": (lambda value: 0 < value < math.inf, "finite and above 0"),
}


@dataclass(frozen=True)
class Preprocessing:
    """What is done to an image before the network sees it."""

    size: tuple[int, int, int]
    """Channels, height and width of an input."""
    mean: tuple[float, ...]
    """What is subtracted from each channel, of pixels 0 to 1."""
    std: tuple[float, ...]
    """What each channel is then divided by."""
    crop: float = 1.0
    """Which share of the short side of a photograph the input shows: 0.875 is 224 of 256."""
    interpolation: Interpolation = "bilinear"

    def __post_init__(self) -> None:
        if not 0 < self.crop <= 1:
            raise OptionError(f"Expected crop to be above 0 and at most 1 but got {self.crop}.")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) != self.size[0]:
                raise OptionError(
                    f"Expected {self.size[0]} values as {name}, one per channel, but got "
                    f"{len(values)}."
                )
            right, kind = _RANGES[name]
            if not all(right(value) for value in values):
                raise OptionError(
                    f"Expected {name} to be {kind}, for pixels from 0 to 1, but got {list(values)}."
                )

    @property
    def short_side(self) -> int:
        """What the short side of a photograph is resized to before the centre is cut out. timm
        rounds down; the small number keeps torchvision's own ratios, such as 224 / 232, whole."""
        return math.floor(max(self.size[1:]) / self.crop + 1e-6)

    def __str__(self) -> str:
        _, height, width = self.size
        mean, std = (", ".join(f"{value:.4g}" for value in v) for v in (self.mean, self.std))
        return f"{height}×{width} pixels, mean {mean}, standard deviation {std}"


def library_preprocessing(
    name: str, network: nn.Module, weights: str | None
) -> Preprocessing | None:
    """Return what the library that `name` belongs to says of its trained weights; None if it has
    none.

    timm says it with the network, torchvision with each of its published weights.
    """
    library, _, rest = name.rpartition(":")
    if library == "timm":
        return _of_timm(network)
    if library == "torchvision":
        return _of_torchvision(rest, weights)
    return None


def _of_timm(network: nn.Module) -> Preprocessing | None:
    found = getattr(network, "pretrained_cfg", None)
    if not isinstance(found, Mapping) or not found.get("mean"):
        return None
    channels, height, width = example_input(network).shape[1:]
    if len(found["mean"]) != channels:
        return None  # built for other images than the published weights
    bicubic = found.get("interpolation") == "bicubic"
    return Preprocessing(
        (channels, height, width),
        tuple(found["mean"]),
        tuple(found["std"]),
        float(found.get("crop_pct") or 1.0),
        "bicubic" if bicubic else "bilinear",
    )


def _of_torchvision(name: str, weights: str | None) -> Preprocessing | None:
    from torchvision.models import get_model_weights

    published = get_model_weights(name)
    if weights is not None and weights in published.__members__:
        chosen = published[weights]
    elif published.__members__:
        chosen = next(iter(published))
    else:
        return None
    transform = chosen.transforms()
    crops: Sequence[int] = getattr(transform, "crop_size", ())
    if len(crops) != 1:  # the height and width of clips have two
        return None  # detectors and segmenters take images of any size
    (crop,), (resize,) = crops, transform.resize_size
    bicubic = getattr(transform, "interpolation", None)
    return Preprocessing(
        (3, crop, crop),
        tuple(transform.mean),
        tuple(transform.std),
        crop / resize,
        "bicubic" if bicubic is not None and bicubic.value == "bicubic" else "bilinear",
    )
