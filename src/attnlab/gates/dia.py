"""Dense-and-Implicit Attention (Huang et al., AAAI 2020).

One LSTM cell per stage, shared by its blocks, reads the channel means z of each block's branch and
remembers. Its pre-activations are `A(z) + B(h)`, with A and B two layers each;
`c' = f ⊙ c + i ⊙ g` and `gate = h' = o ⊙ σ(c')`: a sigmoid where a usual cell has tanh.
"""

from __future__ import annotations

import torch

from attnlab._types import ChannelGate, Maps, Vector
from attnlab.gates._gate import ANY_RANK, StageGate
from attnlab.gates._pooling import spatial_mean
from attnlab.gates._shared import Excitation, as_channel_gate, hidden_width


class DenseImplicitAttention(StageGate):
    """DIA's shared cell. The memory is (h, c); a stage starts without one, which means zeros."""

    ranks = ANY_RANK

    def __init__(self, channels: int, reduction: int = 4) -> None:
        super().__init__(channels)
        hidden = hidden_width(channels, reduction)
        self.from_input = Excitation(channels, hidden, 4 * channels, bias=True)
        self.from_memory = Excitation(channels, hidden, 4 * channels, bias=True)

    def forward(
        self, branch: Maps, memory: tuple[Vector, ...] | None = None
    ) -> tuple[ChannelGate, tuple[Vector, ...]]:
        self.check_input(branch)
        squeezed = spatial_mean(branch)
        if memory is None:
            # One row is enough, since it is the same for every input.
            memory = (squeezed.new_zeros(1, self.channels), squeezed.new_zeros(1, self.channels))
        hidden, cell = memory
        mixed = self.from_input(squeezed) + self.from_memory(hidden)
        write, forget, candidate, output = mixed.chunk(4, dim=1)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(write) * torch.tanh(candidate)
        hidden = torch.sigmoid(output) * torch.sigmoid(cell)
        return as_channel_gate(hidden, branch), (hidden, cell)

    def start_constant(self) -> float:
        # The candidate is then 0, so the cell stays 0 and every block of the stage gets σ(0)².
        self.from_input.start_zero()
        self.from_memory.start_zero()
        return 0.25
