"""Shapes as types, checked under pytest only; calls, and what torch hands to gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

Features = Float[Tensor, "batch channels height width"]
"""A feature map."""

Maps = Float[Tensor, "batch channels *space"]
"""A feature map of one spatial axis or more: sequences, images, volumes."""

ChannelGate = Float[Tensor, "batch channels *ones"]
"""One attention value per input and channel, with an axis of length 1 for each spatial one."""

Vector = Float[Tensor, "batch channels"]
"""One value per input and channel, without the spatial axes."""


Function = Callable[..., object]
"""A function of torch or of a network, whatever it takes."""

Arguments = tuple[object, ...]
"""The positional arguments of a call that is only looked at and handed on."""

Keywords = dict[str, object]
"""Its arguments by name."""


@runtime_checkable
class Saved(Protocol):
    """What torch hands to the gradient of a function: the tensors that the forward pass saved."""

    saved_tensors: tuple[Tensor, ...]
    needs_input_grad: tuple[bool, ...]

    def save_for_backward(self, *tensors: Tensor) -> None: ...

    def mark_non_differentiable(self, *tensors: Tensor) -> None: ...
