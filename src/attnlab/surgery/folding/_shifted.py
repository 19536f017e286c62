"""Convolutions with a shift, and what composing, scaling and adding them gives: again one.

A norm with fixed statistics, average pooling, the identity and a multiplication per channel are
convolutions as well, so that any sum of chains of these on one tensor is a single convolution. That
is all of RepVGG, MobileOne, ACNet and DBB (Ding et al., 2019 to 2021), whatever a library calls
its classes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd, prod

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.surgery.folding._ids import Refusal


@dataclass(frozen=True)
class ShiftedConvolution:
    """out[o] = bias + Σ kernel[k] · in[o · stride − padding + k], with zeros outside the input."""

    kernel: Tensor
    """Output channels, input channels of a group, and the sides."""
    bias: Tensor
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    groups: int
    shifted: bool
    """Whether a bias or a norm was on the way. It is asked for by form and not by value: a network
    just built must merge as the trained one did."""
    macs: int = 0
    """What its parts cost, for one image."""
    sums: int = 0
    """How many additions were merged."""

    @classmethod
    def identity(cls, channels: int, axes: int, like: Tensor) -> ShiftedConvolution:
        """The convolution that returns its input."""
        kernel = torch.ones(channels, 1, *[1] * axes, dtype=like.dtype, device=like.device)
        bias = torch.zeros(channels, dtype=like.dtype, device=like.device)
        return cls(kernel, bias, (1,) * axes, (0,) * axes, channels, shifted=False)

    @property
    def sides(self) -> tuple[int, ...]:
        return tuple(self.kernel.shape[2:])

    @property
    def is_pointwise(self) -> bool:
        return prod(self.sides) == 1

    def scaled(self, scale: Tensor, shift: Tensor) -> ShiftedConvolution:
        """Followed by a multiplication and a shift per channel."""
        axes = self.kernel.ndim - 1
        return replace(
            self,
            kernel=self.kernel * scale.reshape(-1, *[1] * axes),
            bias=self.bias * scale + shift,
            shifted=True,
        )

    def then(self, after: ShiftedConvolution) -> ShiftedConvolution:
        """Followed by another convolution; refused if that is none, or has larger sides."""
        if self.shifted and any(after.padding):
            raise Refusal("zeros are padded after a norm or a bias, so the border is different")
        if not (self.is_pointwise and prod(self.stride) == 1) and not (
            after.is_pointwise and not any(after.padding)
        ):
            raise Refusal("two convolutions with sides above 1 follow each other")
        groups = gcd(self.groups, after.groups)
        first, second = self._in_groups(groups), after._in_groups(groups)
        outputs, middle = second.shape[0] // groups, first.shape[0] // groups
        a = first.reshape(groups, middle, first.shape[1], -1)
        b = second.reshape(groups, outputs, middle, -1)
        # One of the two has a single position, so that the positions of the other stay.
        kernel = torch.einsum("gomp,gmiq->goipq", b, a)
        sides = after.sides if self.is_pointwise else self.sides
        bias = torch.einsum("gomp,gm->go", b, self.bias.reshape(groups, middle)).reshape(-1)
        return ShiftedConvolution(
            kernel.reshape(groups * outputs, first.shape[1], *sides),
            bias + after.bias,
            tuple(a * b for a, b in zip(self.stride, after.stride, strict=True)),
            tuple(
                p + s * q for p, s, q in zip(self.padding, self.stride, after.padding, strict=True)
            ),
            groups,
            self.shifted or after.shifted,
            self.macs + after.macs,
            self.sums + after.sums,
        )

    def plus(self, other: ShiftedConvolution) -> ShiftedConvolution:
        """The sum of the two on one input."""
        if self.stride != other.stride or len(self.bias) != len(other.bias):
            raise Refusal("its branches have different strides")
        groups = gcd(self.groups, other.groups)
        padding = tuple(map(max, self.padding, other.padding))
        margins = [
            tuple(k - 2 * p for k, p in zip(each.sides, each.padding, strict=True))
            for each in (self, other)
        ]
        if margins[0] != margins[1]:
            raise Refusal("its branches treat the border differently")
        kernels = [each._in_groups(groups, padding) for each in (self, other)]
        return ShiftedConvolution(
            kernels[0] + kernels[1],
            self.bias + other.bias,
            self.stride,
            padding,
            groups,
            self.shifted or other.shifted,
            self.macs + other.macs,
            self.sums + other.sums + 1,
        )

    def _in_groups(self, groups: int, padding: tuple[int, ...] | None = None) -> Tensor:
        """The kernel for fewer groups, and in the middle of the larger one that goes with a larger
        padding."""
        kernel = self.kernel
        if padding is not None:
            more = [new - old for new, old in zip(padding, self.padding, strict=True)]
            kernel = F.pad(kernel, [each for m in reversed(more) for each in (m, m)])
        if groups == self.groups:
            return kernel
        joined = self.groups // groups
        inputs = kernel.shape[1]
        outputs = kernel.shape[0] // self.groups
        wide = kernel.new_zeros(kernel.shape[0], inputs * joined, *kernel.shape[2:])
        for group in range(self.groups):
            rows = slice(group * outputs, (group + 1) * outputs)
            start = (group % joined) * inputs
            wide[rows, start : start + inputs] = kernel[rows]
        return wide
