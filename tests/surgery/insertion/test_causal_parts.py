"""Which gates look at other tokens, tried with gates whose reach is known."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from attnlab.gates import BranchGate
from attnlab.residuals.site import Site
from attnlab.surgery.insertion._causal import _looks_back


class Reaches(BranchGate):
    """A gate at token t that is computed from token t + `ahead`, or from the last one there is."""

    def __init__(self, channels: int, ahead: int) -> None:
        super().__init__(channels)
        self.ahead, self.mix = ahead, nn.Linear(channels, channels)

    def forward(self, branch: Tensor) -> Tensor:
        tokens = branch.shape[2]
        seen = [min(max(place + self.ahead, 0), tokens - 1) for place in range(tokens)]
        return torch.einsum("oc,bc...->bo...", self.mix.weight, branch[:, :, seen]).sigmoid()

    def start_constant(self) -> float:
        return 0.5


@pytest.mark.parametrize(
    ("ahead", "looks"), [(0, False), (-1, False), (-3, False), (1, True), (3, True)]
)
def test_a_gate_looks_at_what_comes_after(ahead, looks) -> None:
    site = Site("0", 0, 0, 0, "output", "output", "0", "", "attnlab_0", (1, 6, 4), 2, 0)
    with torch.no_grad():
        assert _looks_back(Reaches(4, ahead), site, seed=0) is looks
