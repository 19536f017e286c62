"""Spatial Group-wise Enhance (Li et al., 2019).

In each group of channels, the similarity of every pixel to the group's mean vector,
`t = Σ_c x_c · mean(x_c)`, is standardised over space to t̂ and gates the pixel:
`gate = σ(w t̂ + b)`.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab._types import Features, Maps, Saved
from attnlab.gates._gate import ANY_RANK, BranchGate
from attnlab.gates._pooling import applied, as_map, in_pieces, is_channels_last, spatial_mean
from attnlab.gates._shared import group_count
from attnlab.gates._statistics import spatial_moments

EPSILON = 1e-5
FEW = 8
"""Channels per group up to which adding them one by one is faster than one large product."""


def _multiplies_as_matrix(grouped: Tensor) -> bool:
    """Whether a matrix product neither copies the map nor, under autocast, rounds it."""
    device = grouped.device.type
    rounds = device != "meta" and torch.is_autocast_enabled(device)
    return grouped.is_contiguous() and not rounds


def _sum_over_members(grouped: Tensor, weight: Tensor) -> Tensor:
    """Σ over the members of each group of `grouped ⊗ weight`."""
    members = grouped.shape[2]
    if members <= FEW:
        total = grouped[:, :, 0] * weight[:, :, 0]
        for member in range(1, members):
            total.addcmul_(grouped[:, :, member], weight[:, :, member])
        return total
    if _multiplies_as_matrix(grouped):
        product = torch.matmul(weight.flatten(2)[:, :, None], grouped.flatten(3))
        return product.reshape(*grouped.shape[:2], *grouped.shape[3:])
    (total,) = in_pieces(lambda map_, factor: ((map_ * factor).sum(dim=2),), grouped, weight)
    return total


def _sum_over_space(grouped: Tensor, pixel: Tensor) -> Tensor:
    """Σ over the pixels of each member of `grouped ⊗ pixel`."""
    if grouped.shape[2] > FEW and _multiplies_as_matrix(grouped):
        return torch.matmul(grouped.flatten(3), pixel.flatten(3).transpose(2, 3))[..., None]
    (total,) = in_pieces(
        lambda map_, factor: ((map_ * factor).sum(dim=(3, 4), keepdim=True),), grouped, pixel
    )
    return total


def _grouped(features: Tensor, mean: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """The map and its means as (batch, groups, members, height, width)."""
    batch, channels, height, width = features.shape
    members = channels // groups
    return (
        features.view(batch, groups, members, height, width),
        mean.view(batch, groups, members, 1, 1),
    )


class _GroupSimilarity(torch.autograd.Function):
    """The mean vectors are functions of the map too; the gradient is one pass of the map's size."""

    generate_vmap_rule = True

    @staticmethod
    def forward(features: Tensor, groups: int) -> tuple[Tensor, Tensor]:
        mean = spatial_mean(features)
        grouped, weight = _grouped(features, mean, groups)
        return _sum_over_members(grouped, weight), mean

    @staticmethod
    def setup_context(
        ctx: Saved, inputs: tuple[Tensor, int], output: tuple[Tensor, Tensor]
    ) -> None:
        ctx.save_for_backward(inputs[0], output[1])

    @staticmethod
    def backward(ctx: Saved, grad: Tensor, grad_mean: Tensor) -> tuple[Tensor, None]:
        features, mean = ctx.saved_tensors
        groups = grad.shape[1]
        pixel = grad[:, :, None]
        grouped, weight = _grouped(features, mean, groups)
        through_mean = _sum_over_space(grouped, pixel)
        through_mean = through_mean + grad_mean.unflatten(1, (groups, -1))[..., None, None]
        share = through_mean / (features.shape[2] * features.shape[3])
        return (weight * pixel).add_(share).flatten(1, 2), None


def group_similarity(
    features: Features, groups: int
) -> Float[Tensor, "batch {groups} height width"]:
    """Σ_c x_c · mean(x_c) over the channels c of each group, at every pixel."""
    similarity, _ = applied(_GroupSimilarity, features, groups)
    return similarity


def spread_over_groups(gate: Features, like: Features) -> Features:
    """Repeat each group's gate for its channels, in the memory order of `like`."""
    batch, groups, height, width = gate.shape
    members = like.shape[1] // groups
    if is_channels_last(like):
        pixels = gate.permute(0, 2, 3, 1)[..., None].expand(-1, -1, -1, -1, members)
        joined = pixels.reshape(batch, height, width, groups * members).contiguous()
        return joined.permute(0, 3, 1, 2)
    maps = gate[:, :, None].expand(-1, -1, members, -1, -1)
    return maps.reshape(batch, groups * members, height, width)


class SpatialGroupEnhance(BranchGate):
    """SGE gate. Starts at w = 0, b = 1, hence at the constant σ(1) = 0.73106.

    Ours: where 64 does not divide the channels, the largest number of groups below it that does;
    a map of one pixel, whose deviation is undefined, is standardised to 0.
    """

    ranks = ANY_RANK

    def __init__(self, channels: int, groups: int = 64) -> None:
        super().__init__(channels)
        self.groups = group_count(channels, groups)
        self.weight = nn.Parameter(torch.empty(self.groups))
        self.bias = nn.Parameter(torch.empty(self.groups))
        self.start_constant()

    def forward(self, branch: Maps) -> Maps:
        self.check_input(branch)
        seen = as_map(branch)
        similarity = group_similarity(seen, self.groups)
        # Standardising cancels leading digits, of which bfloat16 has few.
        similarity = similarity.to(torch.promote_types(similarity.dtype, torch.float32))
        mean, variance = spatial_moments(similarity)
        # A constant map has deviation 0, where the root has no finite slope but the gate is flat.
        deviation = variance.clamp_min(torch.finfo(variance.dtype).tiny).sqrt()
        slope = self.weight / (deviation + EPSILON)
        offset = self.bias - slope * mean
        gate = torch.sigmoid(
            torch.addcmul(offset[:, :, None, None], slope[:, :, None, None], similarity)
        ).to(branch.dtype)
        return spread_over_groups(gate, seen).view_as(branch)

    def start_constant(self) -> float:
        nn.init.zeros_(self.weight)
        nn.init.ones_(self.bias)
        return math.e / (1 + math.e)

    def extra_repr(self) -> str:
        return f"{self.channels}, groups={self.groups}"
