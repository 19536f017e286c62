"""Layers, checks and memory orders that several gates share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from attnlab._errors import InputError, OptionError, unknown_name
from attnlab._types import ChannelGate, Features, Maps, Vector
from attnlab.gates._gate import Activation
from attnlab.gates._pooling import is_channels_last

SquashName = Literal["sigmoid", "hard_sigmoid"]
NonlinearityName = Literal["relu", "silu"]
SQUASHES: Final[dict[SquashName, Activation]] = {
    "sigmoid": torch.sigmoid,
    "hard_sigmoid": F.hardsigmoid,
}
FEW_PIXELS: Final = 256
"""The pixels of a map up to which two vectorised passes are faster than one that is not."""
NONLINEARITIES: Final[dict[NonlinearityName, Activation]] = {"relu": F.relu, "silu": F.silu}


def squash_named(name: SquashName) -> Activation:
    """The last function of a gate, by its name."""
    if name not in get_args(SquashName):
        raise unknown_name("squash", name, get_args(SquashName))
    return SQUASHES[name]


def nonlinearity_named(name: NonlinearityName) -> Activation:
    """The function between two layers, by its name."""
    if name not in get_args(NonlinearityName):
        raise unknown_name("nonlinearity", name, get_args(NonlinearityName))
    return NONLINEARITIES[name]


def hidden_width(channels: int, reduction: int | float) -> int:
    """round(channels / reduction), at least 1: a gate without hidden units would be a constant.

    Python's round is banker's rounding, as in the papers' code: 232 / 16 = 14.5 gives 14.
    """
    _check_reduction(reduction)
    return max(1, round(channels / reduction))


def floored_width(channels: int, reduction: int, least: int = 1) -> int:
    """channels // reduction, at least `least`: for the gates whose authors round down."""
    _check_reduction(reduction)
    return max(least, channels // reduction)


def _check_reduction(reduction: int | float) -> None:
    if reduction < 1:
        raise OptionError(f"Expected reduction to be at least 1 but got {reduction}.")


def odd_kernel_size(size: int) -> int:
    """`size`, or an error when a convolution with it would change the size of the map."""
    if size < 1 or size % 2 == 0:
        raise OptionError(
            f"Expected an odd kernel_size, so that the size of the map is kept, but got {size}."
        )
    return size


def group_count(channels: int, groups: int) -> int:
    """The largest divisor of `channels` that is at most `groups`."""
    if groups < 1:
        raise OptionError(f"Expected groups to be at least 1 but got {groups}.")
    return max(n for n in range(1, min(channels, groups) + 1) if channels % n == 0)


def as_channel_gate(gate: Vector, like: Tensor) -> ChannelGate:
    """One value per channel as a gate of `like`'s dtype.

    Under autocast a float32 parameter would otherwise turn the whole branch into float32.
    """
    if gate.dtype is not like.dtype:
        gate = gate.to(like.dtype)
    if like.dim() == 4:
        return gate.view(*gate.shape, 1, 1)
    return gate.view(*gate.shape, *(1,) * (like.dim() - 2))


def broadcast_like(like: Features, combine: Callable[..., Tensor], *parts: Tensor) -> Features:
    """`combine(*parts)` of small maps that broadcast to `like`, in the memory order of `like`.

    Torch decides the order of a broadcast result by the order of its parts.
    """
    if is_channels_last(like):
        pixels = (part.permute(0, 2, 3, 1).contiguous() for part in parts)
        return combine(*pixels).permute(0, 3, 1, 2)
    return combine(*(part.contiguous() for part in parts))


def scaled_and_shifted(features: Features, scale: ChannelGate, shift: ChannelGate) -> Features:
    """`scale ⊗ features + shift`.

    Torch's addcmul is one pass instead of two, but computes value by value where two of its inputs
    are constant along a row, and that takes longer while the map fits the cache.
    """
    one_pass = torch.compiler.is_compiling() or is_channels_last(features)
    if one_pass or features.shape[2] * features.shape[3] > FEW_PIXELS:
        return torch.addcmul(shift, features, scale)
    return (features * scale).add_(shift)


def ordered_like(gate: Maps, like: Maps) -> Maps:
    """`gate` in the memory order of `like`; a copy only where it has another one."""
    if is_channels_last(like):
        return gate.contiguous(memory_format=torch.channels_last)
    return gate


def zero(layer: nn.Linear | nn.Conv1d | nn.Conv2d) -> None:
    """Let the layer answer 0 to every input; gradients reach it at once."""
    nn.init.zeros_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


class Excitation(nn.Module):
    """SE's two fully connected layers, `W₂ ReLU(W₁ z + b₁) + b₂`, before the activation."""

    def __init__(
        self,
        inputs: int,
        hidden: int,
        outputs: int,
        bias: bool,
        nonlinearity: NonlinearityName = "relu",
    ) -> None:
        super().__init__()
        self.fc1 = nn.Linear(inputs, hidden, bias=bias)
        self.fc2 = nn.Linear(hidden, outputs, bias=bias)
        self.nonlinearity = nonlinearity_named(nonlinearity)

    def forward(self, squeezed: Tensor) -> Tensor:
        layers = self._modules  # self.fc1 is a search in three dictionaries, for every block
        return layers["fc2"](self.nonlinearity(layers["fc1"](squeezed)))  # type: ignore[misc]

    def start_zero(self) -> None:
        """Zero for every input; the gradient reaches `fc2` at once and `fc1` one update later."""
        zero(self.fc2)


def check_batch_statistics(norm: _BatchNorm, values: int, name: str, remedy: str) -> None:
    """Raise `InputError` when `norm` would take the variance of a single value per channel."""
    if norm.training and values == 1:
        raise InputError(
            f"{name} normalises with the statistics of the batch in training mode, and this input "
            f"has one value per channel, which has no variance. {remedy}, or call .eval() on it."
        )


class Strength(nn.Module):
    """The identity start of a gate that has no parameter that could make it constant:
    `1 + s (gate − 1)` with one learned number s, which is there only after `start_zero`.

    Ours. At s = 0 the gate is exactly 1 for every input, and its gradient reaches s; at s = 1 it
    is the paper's. Before `start_zero` this is the identity and has no parameter and no key.
    """

    value: nn.Parameter | None

    def __init__(self) -> None:
        super().__init__()
        self.register_parameter("value", None)

    def forward(self, gate: Tensor) -> Tensor:
        if self.value is None:
            return gate
        return 1 + self.value.to(gate.dtype) * (gate - 1)

    def start_zero(self) -> None:
        """Bring the number into being, at 0."""
        self.value = nn.Parameter(torch.zeros(()))
