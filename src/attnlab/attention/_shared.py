"""What several gates share."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from attnlab._errors import InputError, OptionError
from attnlab._types import ChannelGate, Vector


def hidden_width(channels: int, reduction: int) -> int:
    """round(channels / reduction), at least 1: a gate without hidden units would be a constant.

    Python's round is banker's rounding, as in the papers' code: 232 / 16 = 14.5 gives 14.
    """
    if reduction < 1:
        raise OptionError(f"Expected reduction to be at least 1 but got {reduction}.")
    return max(1, round(channels / reduction))


def as_channel_gate(gate: Vector, like: Tensor) -> ChannelGate:
    """One value per channel as a gate of `like`'s dtype.

    Under autocast a float32 parameter would otherwise turn the whole branch into float32.
    """
    return gate.to(like.dtype)[:, :, None, None]


class Excitation(nn.Module):
    """SE's two fully connected layers, `W₂ ReLU(W₁ z + b₁) + b₂`, before the activation."""

    def __init__(self, inputs: int, hidden: int, outputs: int, bias: bool) -> None:
        super().__init__()
        self.fc1 = nn.Linear(inputs, hidden, bias=bias)
        self.fc2 = nn.Linear(hidden, outputs, bias=bias)

    def forward(self, squeezed: Tensor) -> Tensor:
        return self.fc2(F.relu(self.fc1(squeezed)))

    def start_zero(self) -> None:
        """Zero for every input; the gradient reaches `fc2` at once and `fc1` one update later."""
        nn.init.zeros_(self.fc2.weight)
        if self.fc2.bias is not None:
            nn.init.zeros_(self.fc2.bias)


def check_batch_statistics(norm: _BatchNorm, values: int, name: str, remedy: str) -> None:
    """Raise `InputError` when `norm` would take the variance of a single value per channel."""
    if norm.training and values == 1:
        raise InputError(
            f"{name} normalises with the statistics of the batch in training mode, and this input "
            f"has one value per channel, which has no variance. {remedy}, or call .eval() on it."
        )
