"""The place between normalisation and affine: torch's norm functions, with a noise inside.

One pair (scale, shift) per channel goes into the affine, which is the same to the last digit of
the mathematics and costs nothing; one per image needs the normalised maps themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attnlab._errors import InputError
from attnlab.surgery.noise.kinds import BatchNoise, ConstantNoise, Noise, RandomNoise

Factors = tuple[Tensor | float, Tensor | float]


def batch_norm(
    noise: Noise,
    input: Tensor,  # noqa: A002 (torch's names, by which they are passed)
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """`torch.nn.functional.batch_norm` under `noise`."""
    if isinstance(noise, BatchNoise):
        running = None
        if training and running_mean is not None and running_var is not None:
            running = (running_mean, running_var)
        return _in_parts(noise.n, input, running, weight, bias, momentum, eps)

    def norm(weight: Tensor | None, bias: Tensor | None) -> Tensor:
        return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)

    return _disturbed(noise, norm, input, (input.shape[1],), 1, weight, bias)


def group_norm(
    noise: Noise,
    input: Tensor,  # noqa: A002
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """`torch.nn.functional.group_norm` under `noise`."""

    def norm(weight: Tensor | None, bias: Tensor | None) -> Tensor:
        return F.group_norm(input, num_groups, weight, bias, eps)

    return _disturbed(noise, norm, input, (input.shape[1],), 1, weight, bias)


def layer_norm(
    noise: Noise,
    input: Tensor,  # noqa: A002
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """`torch.nn.functional.layer_norm` under `noise`; its channels are the first axis of
    `normalized_shape`, in most networks the only one."""
    shape = tuple(normalized_shape)

    def norm(weight: Tensor | None, bias: Tensor | None) -> Tensor:
        return F.layer_norm(input, shape, weight, bias, eps)

    return _disturbed(noise, norm, input, shape, input.dim() - len(shape), weight, bias)


FUNCTIONS: dict[Callable[..., Tensor], Callable[..., Tensor]] = {
    F.batch_norm: batch_norm,
    F.group_norm: group_norm,
    F.layer_norm: layer_norm,
}


class Between(TorchFunctionMode):
    """Inside, torch's norm functions run under `noise`.

    `seen`, how many there were, is a list outside the mode: torch.compile lets no one read a mode's
    attributes.
    """

    def __init__(self, noise: Noise, seen: list[int]) -> None:
        super().__init__()
        self.noise = noise
        self.seen = seen

    def __torch_function__(
        self,
        function: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        del types
        if function not in FUNCTIONS:
            return function(*args, **(kwargs or {}))
        self.seen[0] += 1
        return FUNCTIONS[function](self.noise, *args, **(kwargs or {}))


def affine_under(
    noise: Noise, channels: int, weight: Tensor | None, bias: Tensor | None, like: Tensor
) -> tuple[Tensor, Tensor]:
    """The affine of one draw, for a norm whose function is not torch's."""
    assert isinstance(noise, ConstantNoise | RandomNoise)
    like = like if weight is None else weight
    factors = noise.draw(1, channels, like)
    return _absorbed(factors, (channels,), weight, bias, like)


def _disturbed(
    noise: Noise,
    norm: Callable[[Tensor | None, Tensor | None], Tensor],
    input: Tensor,  # noqa: A002
    shape: tuple[int, ...],
    axis: int,
    weight: Tensor | None,
    bias: Tensor | None,
) -> Tensor:
    """`norm` with another affine. `shape`: of the affine; its first axis is `axis` of `input`."""
    assert isinstance(noise, ConstantNoise | RandomNoise)
    like = input if weight is None else weight
    images = input.shape[0] if axis else 1
    scale, shift = noise.draw(images, shape[0], like)
    if isinstance(noise, ConstantNoise) or noise.per != "image":
        return norm(*_absorbed((scale, shift), shape, weight, bias, like))
    assert isinstance(scale, Tensor)
    assert isinstance(shift, Tensor)
    ones = (1,) * (input.dim() - axis - 1)
    spread = (images, *(1,) * (axis - 1), shape[0], *ones) if axis else (shape[0], *ones)
    # Not written as an addition: those are counted where gates act at residual additions.
    disturbed = torch.addcmul(
        shift.view(spread).to(input.dtype), norm(None, None), scale.view(spread).to(input.dtype)
    )
    if weight is None:
        return disturbed
    tail = (*shape, *(1,) * (input.dim() - axis - len(shape)))
    gamma = weight.view(tail).to(input.dtype)
    if bias is None:
        return disturbed * gamma
    return torch.addcmul(bias.view(tail).to(input.dtype), disturbed, gamma)


def _absorbed(
    factors: Factors,
    shape: tuple[int, ...],
    weight: Tensor | None,
    bias: Tensor | None,
    like: Tensor,
) -> tuple[Tensor, Tensor]:
    """γ · scale and β + γ · shift."""
    scale, shift = (
        factor.view(-1, *(1,) * (len(shape) - 1)) if isinstance(factor, Tensor) else factor
        for factor in factors
    )
    if weight is None:
        weight = torch.ones(shape, dtype=like.dtype, device=like.device)
    product = weight * shift
    return weight * scale, product if bias is None else bias + product


def _in_parts(
    n: int,
    input: Tensor,  # noqa: A002
    running: tuple[Tensor, Tensor] | None,
    weight: Tensor | None,
    bias: Tensor | None,
    momentum: float,
    eps: float,
) -> Tensor:
    """Every n images with their own statistics; a rest joins the last n. The running statistics
    move once, by the mean over the parts, so with n the whole batch all is as without noise."""
    images = input.shape[0]
    if images < n:
        raise InputError(
            f"Batch noise takes the statistics of {n} images, but a batch has {images}. Use "
            f"batches of at least {n}, and drop_last = true where the last one is smaller."
        )
    ends = [n * part for part in range(1, images // n)]
    parts = cast("Sequence[Tensor]", input.tensor_split(ends))
    made: list[Tensor] = []
    moved: list[tuple[Tensor, Tensor]] = []
    for part in parts:
        mean, variance = (None, None) if running is None else (each.clone() for each in running)
        made.append(F.batch_norm(part, mean, variance, weight, bias, True, momentum, eps))
        if mean is not None and variance is not None:
            share = part.shape[0] / images
            moved.append((mean * share, variance * share))
    if running is not None:
        with torch.no_grad():
            for stored, each in zip(running, zip(*moved, strict=True), strict=True):
                stored.copy_(torch.stack(each).sum(0))
    return torch.cat(made)
