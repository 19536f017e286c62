"""The three noises. Each disturbs x̂, what a norm has normalised, before its affine `γ x̂ + β`.

* `constant(a, b)`: x̂ ← a x̂ + b. The affine absorbs it, `γ (a x̂ + b) + β = (γ a) x̂ + (β + γ b)`,
  so it is another start of γ and β rather than noise, and it belongs to the network: it acts in
  training and in test.
* `random(sigma)`: x̂ ← (1 + σ ε₁) x̂ + σ ε₂, with ε normal and drawn anew in every forward.
* `batch(n)`: the statistics of n images in place of those of the batch, or of the running ones.

The ASR and IEBN papers name these attacks; strengths and the last two definitions are ours.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

from attnlab._errors import OptionError, unknown_name

if TYPE_CHECKING:
    from torch import Tensor

During = Literal["training", "test", "both"]
"""When a noise acts: a norm in training mode, in eval mode, or always."""
Per = Literal["layer", "channel", "image"]
"""What has a draw of its own: a layer, each channel of it, or each channel of each image."""


class Noise(ABC):
    """What is done to x̂."""

    default_during: ClassVar[During]

    @property
    @abstractmethod
    def label(self) -> str:
        """The name of the noise in tables: `random σ = 0.3 per channel`."""

    @property
    @abstractmethod
    def strength(self) -> tuple[float, ...]:
        """The numbers that say how strong it is: a and b, σ, or n."""


@dataclass(frozen=True)
class ConstantNoise(Noise):
    """x̂ ← a x̂ + b."""

    a: float
    b: float
    default_during: ClassVar[During] = "both"

    def __post_init__(self) -> None:
        _check_number("a", self.a)
        _check_number("b", self.b)

    @property
    def label(self) -> str:
        return f"constant ({self.a:g}, {self.b:g})"

    @property
    def strength(self) -> tuple[float, ...]:
        return self.a, self.b

    def draw(self, images: int, channels: int, like: Tensor) -> tuple[float, float]:
        """The factor a and the summand b, which are the same for every draw."""
        del images, channels, like
        return self.a, self.b


@dataclass(frozen=True)
class RandomNoise(Noise):
    """x̂ ← (1 + σ ε₁) x̂ + σ ε₂, from torch's random state."""

    sigma: float
    per: Per = "channel"
    default_during: ClassVar[During] = "training"

    def __post_init__(self) -> None:
        _check_number("sigma", self.sigma)
        if self.sigma < 0:
            raise OptionError(f"Expected sigma to be at least 0 but got {self.sigma}.")
        if self.per not in get_args(Per):
            raise unknown_name("per of random noise", self.per, get_args(Per))

    @property
    def label(self) -> str:
        return f"random σ = {self.sigma:g} per {self.per}"

    @property
    def strength(self) -> tuple[float, ...]:
        return (self.sigma,)

    def draw(self, images: int, channels: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Scale and shift: of shape (1), (channels) or (images, channels)."""
        import torch  # not with the file: settings are read without it

        shapes = {"layer": (1,), "channel": (channels,), "image": (images, channels)}
        shape = shapes[self.per]
        scale = 1 + self.sigma * torch.randn(shape, dtype=like.dtype, device=like.device)
        return scale, self.sigma * torch.randn(shape, dtype=like.dtype, device=like.device)


@dataclass(frozen=True)
class BatchNoise(Noise):
    """Statistics of every n images of a batch, each part on its own."""

    n: int
    default_during: ClassVar[During] = "training"

    def __post_init__(self) -> None:
        if isinstance(self.n, bool) or not isinstance(self.n, int) or self.n < 2:
            raise OptionError(
                f"Expected n to be a whole number of at least 2, because one value has no "
                f"variance, but got {self.n!r}."
            )

    @property
    def label(self) -> str:
        return f"batch statistics of {self.n}"

    @property
    def strength(self) -> tuple[float, ...]:
        return (self.n,)


def constant(a: float, b: float) -> ConstantNoise:
    """x̂ ← a x̂ + b in every norm. IEBN's strengths, as far as known: (0.8, 0.8) to (0.5, 0.2)."""
    return ConstantNoise(a, b)


def random(sigma: float, per: Per = "channel") -> RandomNoise:
    """x̂ ← (1 + σ ε₁) x̂ + σ ε₂, drawn anew in every forward, from torch's random state."""
    return RandomNoise(sigma, per)


def batch(n: int) -> BatchNoise:
    """Batch statistics of n images: more batch noise in training, or batch statistics in test."""
    return BatchNoise(n)


def check_during(during: str) -> None:
    """Refuse what is not a time to act."""
    if during not in get_args(During):
        raise unknown_name("time of noise", during, get_args(During))


def _check_number(name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise OptionError(f"Expected {name} to be a finite number but got {value!r}.")
