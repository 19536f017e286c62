"""The formulas of a change of the output, each against itself written out."""

from __future__ import annotations

from math import inf, nan

import pytest
import torch

from attnlab._errors import InputError
from attnlab.surgery.answer import Answer
from attnlab.surgery.change import (
    Change,
    change_between,
    image_changes,
    largest_change,
    mean_image_change,
    relative_to,
    total_change,
)
from attnlab.surgery.words import largest_in_words

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
    assert total_change([odd], [changed.nan_to_num(posinf=5.0)]) == inf
    assert total_change([changed.nan_to_num(posinf=5.0)], [odd]) == inf
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


def compared(before: object, after: object) -> Change:
    return change_between(Answer(before, 0), Answer(after, 0))


ONE, TWO = torch.tensor([[1.0, -2.0]]), torch.tensor([[1.0, -1.5]])
WHOLE = torch.tensor([1, 2, 3])


@pytest.mark.parametrize(
    ("before", "after", "largest", "said", "of_output"),
    [
        (ONE, TWO, 0.5, "", 0.25),
        ({"a": ONE, "b": [WHOLE]}, {"a": TWO, "b": [WHOLE.clone()]}, 0.5, "", 0.25),
        (
            (ONE, WHOLE),
            (TWO, WHOLE + torch.tensor([0, 1, 1])),
            0.5,
            "2 of 3 integers of output[1] differ",
            inf,
        ),
        (ONE, TWO[0], None, "the output is (1, 2) before and (2) after", inf),
        ((ONE, ONE), (TWO,), 0.5, "output[1] is (1, 2) before and nothing after", inf),
        ((ONE,), (TWO, ONE), 0.5, "output[1] is nothing before and (1, 2) after", inf),
        (WHOLE, WHOLE, None, "it has integers only", None),
        (WHOLE, WHOLE + 1, None, "it has integers only; 3 of 3 integers of the output differ", inf),
        (None, None, None, "it holds no tensor, it is a NoneType", None),
        (torch.ones(0, 3), torch.ones(0, 3), None, "it is empty, (0, 3)", None),
        (ONE, WHOLE[None, :2], None, "1 of 2 integers of the output differ", inf),
        (ONE * inf, ONE * inf, None, "2 of 2 values are not finite, both times", None),
        (
            (ONE, ONE * inf),
            (TWO, ONE * inf),
            0.5,
            "2 of 4 values are not finite, both times",
            0.25,
        ),
        (
            (torch.ones(0), ONE * inf),
            (torch.ones(0), ONE * inf),
            None,
            "2 of 2 values are not finite, both times",
            None,
        ),
        (ONE, ONE.clone(), 0.0, "", 0.0),
    ],
)
def test_what_is_said_of_two_outputs(before, after, largest, said, of_output) -> None:
    found = compared(before, after)
    relative = None if largest is None else largest / 2
    assert found == Change(largest, relative, said, of_output)


def test_outputs_on_the_meta_device() -> None:
    meta = torch.ones(2, device="meta")
    assert compared((ONE, meta), (TWO, meta)) == Change(
        None, None, "the network is on the meta device"
    )
    for more in ({}, {("other", 0): ONE}):  # a part of it may be elsewhere
        seen = Answer(None, 0, seen={("head", 0): meta, **more})
        assert change_between(seen, seen).compared == "the network is on the meta device"


def test_what_was_seen_is_compared_in_place_of_the_output() -> None:
    head, other = ("head", 0), ("head", 1)
    before = Answer(ONE, 0, seen={head: ONE, other: torch.ones(3)})
    after = Answer(TWO, 0, seen={head: TWO, other: torch.ones(4)})
    found = change_between(before, after)
    assert (found.largest, found.relative, found.of_output) == (0.5, 0.25, 0.25)
    assert found.compared == (
        "in what head returned, before anything is selected from it; the output: "
        f"{largest_in_words(0.5, 0.25)}"
    )
    gone = change_between(before, Answer(TWO, 0, seen={other: torch.ones(4)}))
    assert (gone.largest, gone.relative, gone.of_output) == (None, None, 0.25)
    assert gone.compared == (
        "what head returned has other shapes than before; the output: "
        f"{largest_in_words(0.5, 0.25)}"
    )
    nowhere = Answer((WHOLE,), 0, seen={head: ONE * inf})
    assert change_between(nowhere, nowhere).compared == (
        "what head returned is nowhere finite; the output: it has integers only"
    )


def test_the_largest_change_and_the_largest_value() -> None:
    """Of the values that are finite both times; a change of none is none."""
    values = torch.tensor([nan, inf, -inf, 3.0, -7.0])
    assert largest_change([]) == (None, 0.0, [])
    assert largest_change([(values, values)]) == (
        0.0,
        7.0,
        ["3 of 5 values are not finite, both times"],
    )
    moved = values + torch.tensor([0, 0, 0, -0.5, 0.25])
    assert largest_change([(values, moved), (ONE, TWO)])[:2] == (0.5, 7.0)
    assert largest_change([(ONE, TWO), (values, values)])[:2] == (0.5, 7.0)
    assert largest_change([(values, -values)])[0] == inf
    assert largest_change([(values, values.flip(0)), (ONE, TWO)])[0] == inf
    both = torch.tensor([1 + 2j, -3 - 4j])
    assert largest_change([(both, both + 0.5j)]) == (0.5, 4.0, [])
    assert largest_change([(torch.ones(0), torch.ones(0))]) == (None, 0.0, [])


def test_the_change_of_every_image() -> None:
    before = torch.tensor([[[3.0], [4.0]], [[0.0], [2.0]]])
    after = before + torch.tensor([[[0.0], [5.0]], [[1.0], [0.0]]])
    assert image_changes(before, after).tolist() == [1.0, 0.5]
    zeros = torch.zeros(3, 2)
    with pytest.raises(InputError) as raised:
        image_changes(zeros, zeros)
    assert str(raised.value) == (
        "The network returns zeros for 3 of 3 images, so nothing can be said about a change. Is "
        "its last layer still as it was initialised?"
    )


def test_a_change_of_nothing_is_not_infinite() -> None:
    assert relative_to(0.0, 0.0) == 0.0
    assert total_change([torch.zeros(2)], [torch.zeros(2)]) == 0.0
    assert total_change([1e-9 * BEFORE], [2e-9 * BEFORE]) == pytest.approx(1)
    assert relative_to(1e-9, 2e-9) == pytest.approx(0.5)


def test_what_cannot_be_compared() -> None:
    assert total_change([BEFORE], [AFTER[:1]]) == inf
    assert total_change([], []) == inf
    for kept, said in (([0.0, 1.0, 1.0], "1 of 3"), ([0.0, 0.0, 1.0], "2 of 3")):
        before = torch.tensor(kept)[:, None] * BEFORE[:1]
        with pytest.raises(InputError, match=f"The network returns zeros for {said} images"):
            mean_image_change(before, before + 1)
