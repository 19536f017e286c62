"""Instance Enhancement Batch Normalization (Liang et al., AAAI 2020).

`y = x̂ ⊙ (γ ⊙ σ(w ⊙ z + b)) + β`, where x̂ is the normalised input and z the channel means of the
input *before* normalisation. It replaces a BatchNorm: the gate acts between its scale and its
shift, where no gate on the outside could, so it is a norm and not a `Gate`.

The gate inside it, Instance Enhancement, is also a gate by itself: `gate = σ(w ⊙ z + b)`, one slope
and one offset per channel mean z.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.fx import Proxy, Tracer

from attnlab._errors import SiteError
from attnlab._types import ChannelGate, Features, Maps, Vector
from attnlab.gates._gate import ANY_RANK, Activation, VectorGate
from attnlab.gates._pooling import spatial_mean
from attnlab.gates._shared import as_channel_gate, check_batch_statistics, scaled_and_shifted


class InstanceEnhancement(VectorGate):
    """IE gate. Starts at w = 0, b = −1, hence at the constant σ(−1) = 0.26894."""

    ranks = ANY_RANK

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.weight = nn.Parameter(torch.empty(channels))
        self.bias = nn.Parameter(torch.empty(channels))
        self.start_constant()

    def forward(self, branch: Maps) -> ChannelGate:
        self.check_input(branch)
        return as_channel_gate(self.of_vector(spatial_mean(branch), self.squash), branch)

    def of_vector(self, vector: Vector, activation: Activation) -> Vector:
        return activation(torch.addcmul(self.bias, self.weight, vector.to(self.weight.dtype)))

    def start_constant(self) -> float:
        nn.init.zeros_(self.weight)
        nn.init.constant_(self.bias, -1.0)
        return 1 / (1 + math.e)


class InstanceEnhancementBatchNorm(nn.BatchNorm2d):
    """A BatchNorm2d whose γ is gated; adds the keys `gate.weight`, `gate.bias`, `gate_scale`."""

    def __init__(
        self,
        channels: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__(channels, eps, momentum, affine, track_running_stats)
        self.gate = InstanceEnhancement(channels)
        # 1 unless `start_identity` was called; a buffer, so that a checkpoint restores it.
        self.gate_scale: Tensor
        self.register_buffer("gate_scale", torch.ones(()))

    @classmethod
    def from_batch_norm(cls, norm: nn.BatchNorm2d) -> InstanceEnhancementBatchNorm:
        """Return the same norm with a gate: parameters and buffers are shared with `norm`, not
        copied."""
        if type(norm) is not nn.BatchNorm2d:
            raise SiteError(
                f"Expected a torch.nn.BatchNorm2d to enhance but got {type(norm).__name__}, which "
                "may do more than normalise. Select the sites whose norm is a plain BatchNorm2d."
            )
        tracks = norm.track_running_stats
        new = cls(norm.num_features, norm.eps, norm.momentum, norm.affine, tracks)
        like = next((t for t in (norm.weight, norm.running_mean) if t is not None), None)
        if like is not None:
            new.to(device=like.device, dtype=like.dtype)
        new.weight, new.bias = norm.weight, norm.bias
        new.running_mean, new.running_var = norm.running_mean, norm.running_var
        new.num_batches_tracked = norm.num_batches_tracked
        return new.train(norm.training)

    def plain(self) -> nn.BatchNorm2d:
        """The norm without its gate, as it was before `from_batch_norm`; tensors are shared."""
        tracks = self.track_running_stats
        norm = nn.BatchNorm2d(self.num_features, self.eps, self.momentum, self.affine, tracks)
        norm.weight, norm.bias = self.weight, self.bias
        norm.running_mean, norm.running_var = self.running_mean, self.running_var
        norm.num_batches_tracked = self.num_batches_tracked
        return norm.train(self.training)

    def forward(self, input: Features) -> Features:  # noqa: A002 (the name in nn.BatchNorm2d)
        if isinstance(input, Proxy) and isinstance(input.tracer, Tracer):  # one node, as a norm is
            path = input.tracer.path_of_module(self)
            return input.tracer.create_proxy("call_module", path, (input,), {})
        batch, _, height, width = input.shape
        check_batch_statistics(
            self, batch * height * width, type(self).__name__, "Use a larger batch or a larger map"
        )
        gate = self.gate(input) * self.gate_scale.to(input.dtype)
        # γ x̂ + β comes from the parent, and the shift must not be gated: γ x̂ g + β = (y − β) g + β.
        shift = None if self.bias is None else self.bias.to(input.dtype)[:, None, None]
        normalised = super().forward(input)
        if shift is None:
            return normalised * gate
        return scaled_and_shifted(normalised, gate, shift * (1 - gate))

    def start_identity(self) -> None:
        """Let the norm act as without its gate at first; gradients reach the gate at once."""
        self.gate_scale.fill_(1 / self.gate.start_constant())
