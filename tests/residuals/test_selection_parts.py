"""Which networks return sets: what they hand out has a length that depends on values."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from attnlab.residuals.example import run_once
from attnlab.residuals.selection import returns_sets


class Returns(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.layer, self.function = nn.Linear(4, 4), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.layer(x))


@pytest.mark.parametrize(
    ("function", "sets"),
    [
        (lambda x: x[x > 0], True),
        (lambda x: x[torch.where(x[:, 0] > 0)], True),
        (lambda x: x[(x[:, 0] > 0).nonzero()[:, 0]], True),
        (lambda x: x[torch.where(condition=x[:, 0] > 0)], True),
        (lambda x: torch.where(x > 0, x, -x), False),
        (lambda x: torch.where(x > 0, input=x, other=-x), False),
        (lambda x: x[torch.arange(2)], False),
        (lambda x: x.max(1).values, False),
        (lambda x: x, False),
    ],
)
def test_what_has_a_length_by_values_is_a_set(function, sets) -> None:
    torch.manual_seed(0)
    assert returns_sets(run_once(Returns(function), torch.randn(6, 4)).graph) is sets
