"""The formulas of a change of the output, each against itself written out."""

from __future__ import annotations

from math import inf

import pytest
import torch

from attnlab._errors import InputError
from attnlab.surgery.answer import Answer
from attnlab.surgery.change import (
    change_between,
    largest_change,
    mean_image_change,
    relative_to,
    total_change,
)

BEFORE = torch.tensor([[3.0, 4.0], [30.0, 40.0]], dtype=torch.float64)
AFTER = torch.tensor([[3.0, 5.0], [30.0, 40.0]], dtype=torch.float64)


def test_three_formulas_of_the_same_answers() -> None:
    largest, size, remarks = largest_change([(BEFORE, AFTER)])
    assert (largest, size, remarks) == (1.0, 40.0, [])
    assert relative_to(1.0, size) == 1 / 40
    assert total_change([BEFORE], [AFTER]) == pytest.approx(1 / (5**2 + 50**2) ** 0.5)
    assert mean_image_change(BEFORE, AFTER) == pytest.approx((1 / 5 + 0) / 2)


def test_several_answers_are_taken_together() -> None:
    """What is not finite in both at the same places is left out."""
    scale = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    odd = torch.tensor([[inf, 1.0]], dtype=torch.float64)
    changed = torch.tensor([[inf, 3.0]], dtype=torch.float64)
    found = total_change([BEFORE, scale, odd], [AFTER, scale + 1, changed])
    assert found == pytest.approx(((1 + 2 + 4) / (25 + 2500 + 5 + 1)) ** 0.5)
    assert total_change([odd], [changed.nan_to_num()]) == inf
    assert total_change([odd[:, :1]], [odd[:, :1]]) == inf  # nothing is left to compare
    largest, size, _ = largest_change([(scale, scale + 1), (odd, changed), (BEFORE, AFTER)])
    assert (largest, size) == (2, 40)
    largest, size, said = largest_change([(odd, changed.nan_to_num(posinf=0.0))])
    assert (largest, size) == (inf, 1)
    assert said == ["1 of 2 values are not finite, at other places than before"]
    *_, said = largest_change([(BEFORE, AFTER), (odd, changed), (scale, scale), (odd, changed)])
    assert said == ["2 of 10 values are not finite, both times"]


def test_of_many_remarks_three_are_said() -> None:
    def said(number: int) -> str:
        before, after = ([torch.ones(n) for _ in range(number)] for n in (1, 2))
        return change_between(Answer(before, 0), Answer(after, 0)).compared

    each = "output[{}] is (1) before and (2) after"
    three = "; ".join(each.format(n) for n in range(3))
    assert (said(3), said(4), said(5)) == (three, f"{three}; and 1 more", f"{three}; and 2 more")


def test_what_cannot_be_compared() -> None:
    assert total_change([BEFORE], [AFTER[:1]]) == inf
    assert total_change([], []) == inf
    for kept, said in (([0.0, 1.0, 1.0], "1 of 3"), ([0.0, 0.0, 1.0], "2 of 3")):
        before = torch.tensor(kept)[:, None] * BEFORE[:1]
        with pytest.raises(InputError, match=f"The network returns zeros for {said} images"):
            mean_image_change(before, before + 1)
