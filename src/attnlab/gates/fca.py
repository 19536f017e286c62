"""Frequency Channel Attention (Qin et al., ICCV 2021).

The channels fall into 16 groups; each group is weighted by its own basis function of the
two-dimensional discrete cosine transform (DCT) and summed over space. SE's two layers follow.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from attnlab._errors import OptionError
from attnlab._types import ChannelGate, Features, Saved, Vector
from attnlab.gates._gate import BranchGate
from attnlab.gates._pooling import applied, in_pieces, pooling_matrix, shrink
from attnlab.gates._shared import Excitation, as_channel_gate, hidden_width

# The 16 best single frequencies in the paper's ranking ("top16"), on a grid of 7 x 7.
VERTICAL = (0, 0, 6, 0, 0, 1, 1, 4, 5, 1, 3, 0, 0, 0, 3, 2)
HORIZONTAL = (0, 1, 0, 5, 2, 0, 2, 0, 0, 6, 0, 4, 6, 3, 5, 2)
GRID = 7


def default_dct_size(channels: int) -> int:
    """The map size of the CIFAR networks at this width: 32, 16, 8 at 64, 128, 256; at least 7.

    The paper's code has a table for ImageNet only. This rule is ours; it needs no table.
    """
    return max(GRID, min(32, 2048 // channels))


def cosine_basis(frequencies: tuple[int, ...], size: int) -> Tensor:
    """Orthonormal DCT-II functions along one axis; frequencies of the 7-grid scale to `size`."""
    position = torch.arange(size, dtype=torch.float64) + 0.5
    frequency = torch.tensor(frequencies, dtype=torch.float64)[:, None] * (size // GRID)
    norm = torch.where(frequency == 0, math.sqrt(1 / size), math.sqrt(2 / size))
    basis = norm * torch.cos(math.pi / size * frequency * position)
    return basis.to(torch.get_default_dtype())


class _WeightedSum(torch.autograd.Function):
    """Σ over the last two axes of `features ⊗ weight`; the weight is a constant."""

    generate_vmap_rule = True

    @staticmethod
    def forward(features: Tensor, weight: Tensor) -> Tensor:
        (total,) = in_pieces(lambda piece: ((piece * weight).sum(dim=(-2, -1)),), features)
        return total

    @staticmethod
    def setup_context(ctx: Saved, inputs: tuple[Tensor, Tensor], output: object) -> None:  # noqa: ARG004
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Saved, grad: Tensor) -> tuple[Tensor, None]:
        (weight,) = ctx.saved_tensors
        return grad[..., None, None] * weight, None


def group_coefficients(features: Features, basis: Float[Tensor, "groups height width"]) -> Vector:
    """The inner product over space of channel c with basis function floor(groups · c / C)."""
    channels, groups = features.shape[1], basis.shape[0]
    if channels % groups == 0:
        grouped = features.unflatten(1, (groups, -1))
        return applied(_WeightedSum, grouped, basis[:, None]).flatten(1)
    group = torch.arange(channels, device=features.device) * groups // channels
    return applied(_WeightedSum, features, basis[group])


class FrequencyChannelAttention(BranchGate):
    """FCA gate; both layers have a bias: only that reproduces StepNet's parameter counts.

    Maps of another size than `dct_size` are average-pooled to it, as in the paper; the pooling is
    merged into the basis. Ours: channel c belongs to group
    floor(16 c / C), which is the paper's grouping when 16 divides C, and works when it does not.
    """

    def __init__(
        self, channels: int, reduction: int = 16, dct_size: int | None = None, bias: bool = True
    ) -> None:
        super().__init__(channels)
        size = default_dct_size(channels) if dct_size is None else dct_size
        if size < GRID:
            raise OptionError(
                f"Expected dct_size to be at least {GRID}, the size of the paper's grid of "
                f"frequencies, but got {size}."
            )
        self.dct_size = size
        self.rows: Tensor
        self.columns: Tensor
        self.register_buffer("rows", cosine_basis(VERTICAL, size))
        self.register_buffer("columns", cosine_basis(HORIZONTAL, size))
        self.excitation = Excitation(channels, hidden_width(channels, reduction), channels, bias)

    def forward(self, branch: Features) -> ChannelGate:
        self.check_input(branch)
        return as_channel_gate(torch.sigmoid(self.excitation(self.squeeze(branch))), branch)

    def squeeze(self, branch: Features) -> Vector:
        """Each channel's coefficient of its group's frequency."""
        small = shrink(branch, self.dct_size)
        rows = self._fitted(self.rows, small.shape[2])
        columns = self._fitted(self.columns, small.shape[3])
        basis = rows[:, :, None] * columns[:, None, :]
        return group_coefficients(small, basis.to(branch.dtype))

    def start_constant(self) -> float:
        self.excitation.start_zero()
        return 0.5

    def extra_repr(self) -> str:
        return f"{self.channels}, dct_size={self.dct_size}"

    def _fitted(self, basis: Tensor, cells: int) -> Tensor:
        if cells == self.dct_size and not torch.compiler.is_exporting():
            return basis
        return basis @ pooling_matrix(cells, self.dct_size, basis)
