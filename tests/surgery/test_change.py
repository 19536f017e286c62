"""The formulas of a change of the output, each against itself written out."""

from __future__ import annotations

from math import inf

import pytest
import torch

from attnlab._errors import InputError
from attnlab.surgery.change import largest_change, mean_image_change, relative_to, total_change

BEFORE = torch.tensor([[3.0, 4.0], [30.0, 40.0]], dtype=torch.float64)
AFTER = torch.tensor([[3.0, 5.0], [30.0, 40.0]], dtype=torch.float64)


def test_three_formulas_of_the_same_answers() -> None:
    largest, size, remarks = largest_change([(BEFORE, AFTER)])
    assert (largest, size, remarks) == (1.0, 40.0, [])
    assert relative_to(1.0, size) == 1 / 40
    assert total_change([BEFORE], [AFTER]) == pytest.approx(1 / (5**2 + 50**2) ** 0.5)
    assert mean_image_change(BEFORE, AFTER) == pytest.approx((1 / 5 + 0) / 2)


def test_what_cannot_be_compared() -> None:
    assert total_change([BEFORE], [AFTER[:1]]) == inf
    assert total_change([], []) == inf
    with pytest.raises(InputError, match="The network returns zeros for 1 of 2 images"):
        mean_image_change(BEFORE * torch.tensor([[0.0], [1.0]]), AFTER)
