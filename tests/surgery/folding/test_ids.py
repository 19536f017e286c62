"""Which gate multiplies which element: ids that are carried through operations, by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from attnlab.surgery.folding._ids import (
    NOT_READ,
    Refusal,
    along,
    broadcast_from,
    channel_vector,
    merge,
    pull_back,
    push_forward,
    unexpanded,
)

MIXED = "mixes channels that have different gates"


def ids(*values: object) -> Tensor:
    return torch.tensor(values)


def test_expanded_axes_are_of_size_one_but_for_the_one_that_is_kept():
    vector = along(ids(4, 5, 6), 1, (2, 3, 7))
    assert vector.shape == (2, 3, 7)
    assert torch.equal(vector[1, :, 4], ids(4, 5, 6))
    assert torch.equal(unexpanded(vector), ids(4, 5, 6)[None, :, None])
    one = ids(8).expand(2, 3)
    assert unexpanded(one).shape == (1, 1)
    assert unexpanded(one, 1).shape == (1, 3)
    assert unexpanded(one, 0).shape == (2, 1)
    assert unexpanded(torch.zeros(1, 3).expand(0, 3)).shape == (0, 3)  # nothing to take one of
    assert unexpanded(ids(1, 2, 3)).tolist() == [1, 2, 3]


def test_what_two_readers_ask_for_is_merged():
    assert merge(None, ids(3, NOT_READ)).tolist() == [3, NOT_READ]
    first, second = ids(0, NOT_READ, 2, NOT_READ), ids(0, 1, NOT_READ, NOT_READ)
    assert merge(first, second).tolist() == merge(second, first).tolist() == [0, 1, 2, NOT_READ]
    for other in (ids(0, 1, 3, NOT_READ), ids(4, 1, 2, NOT_READ)):
        with pytest.raises(Refusal, match=r"^is needed both with and without the gate$"):
            merge(first, other)


@pytest.mark.parametrize("axis", [1, -1])
def test_the_ids_along_an_axis(axis):
    rows = ids([0, NOT_READ, 2], [0, 1, NOT_READ])
    assert channel_vector(rows, axis).tolist() == [0, 1, 2]
    assert channel_vector(rows.t(), axis - 1).tolist() == [0, 1, 2]
    assert channel_vector(along(ids(3, 1), 1, (4, 2)), axis).tolist() == [3, 1]
    assert channel_vector(ids(3).expand(5, 2), axis).tolist() == [3, 3]
    with pytest.raises(Refusal, match=r"^has its channels on another axis$"):
        channel_vector(rows, axis - 1)


def test_the_ids_of_a_vector_are_its_own():
    assert channel_vector(ids(3, 1, NOT_READ), 0).tolist() == [3, 1, NOT_READ]


@pytest.mark.parametrize(
    ("function", "shape", "asked", "expected"),
    [
        (lambda x: [x.t()], (2, 3), [[0, 3], [1, 4], [2, 5]], [[0, 1, 2], [3, 4, 5]]),
        (lambda x: [x[1:3]], (4,), [7, 0], [NOT_READ, 7, 0, NOT_READ]),
        (lambda x: [x], (3,), [0, NOT_READ, 2], [0, NOT_READ, 2]),
        (lambda x: [x.mean(1)], (2, 3), [6, 0], [[6] * 3, [0] * 3]),
        (lambda x: [3.0 * x.repeat(2)], (2,), [1, 4, 1, 4], [1, 4]),
        # An element that one of two readers does not read has what the other asks for.
        (lambda x: [x.repeat(2)], (2,), [1, NOT_READ, NOT_READ, 4], [1, 4]),
    ],
    ids=["transposed", "a slice", "not read", "mean", "repeated", "one of two reads"],
)
def test_ids_are_pulled_back(function, shape, asked, expected):
    (found,) = pull_back(function, [shape], {0: torch.tensor(asked)})
    assert found.dtype == torch.int64
    assert found.tolist() == expected


def test_ids_are_pulled_back_from_several_outputs_to_several_inputs():
    def function(a: Tensor, b: Tensor, unused: Tensor) -> list[Tensor]:
        return [torch.cat((a, b)), unused, b[:1] * 2]

    found = pull_back(function, [(1,), (2,), (3,)], {2: ids(5), 0: ids(0, 5, NOT_READ)})
    assert [each.tolist() for each in found] == [[0], [5, NOT_READ], [NOT_READ] * 3]
    assert [
        each.tolist() for each in pull_back(function, [(0,), (2,), (3,)], {1: ids(1, 2, 3)})
    ] == [
        [],
        [NOT_READ] * 2,
        [1, 2, 3],
    ]


@pytest.mark.parametrize("asked", [[0, 1], [0, 2], [2, 0], [0, 1000]])
def test_one_element_cannot_have_two_ids(asked):
    """Not even where their mean is a whole number."""
    with pytest.raises(Refusal, match=rf"^{MIXED}$"):
        pull_back(lambda x: [x.repeat(2)], [(1,)], {0: torch.tensor(asked)})


def test_an_operand_that_was_stretched_has_one_id_along_that_axis():
    asked = along(ids(2, 0, 1), 1, (2, 3, 4))
    assert broadcast_from(asked, (3, 1)).tolist() == [[2], [0], [1]]
    assert broadcast_from(asked, (2, 3, 4)) is asked
    with pytest.raises(Refusal, match=rf"^{MIXED}$"):
        broadcast_from(asked, (1, 4))


@pytest.mark.parametrize(
    ("function", "given", "expected"),
    [
        (lambda x: [x.t(), x[0]], [[0, 1], [2, 3]], [[[0, 2], [1, 3]], [0, 1]]),
        (lambda x: [x.mean(1)], [[4, 4], [0, 0]], [[4, 0]]),
        (lambda x: [0.25 * x.sum(0)], [[4, 1], [4, 1]], [[4, 1]]),
        (lambda x: [torch.nn.functional.pad(x, (1, 0))], [[5]], [[[NOT_READ, 5]]]),
    ],
    ids=["moved", "mean", "scaled sum", "border"],
)
def test_ids_are_pushed_forward(function, given, expected):
    found = push_forward(function, [torch.tensor(given)])
    assert [each.tolist() for each in found] == expected


@pytest.mark.parametrize("given", [[0, 1], [0, 2], [3, 0], [1000, 1001]])
def test_a_mean_of_two_ids_has_none(given):
    with pytest.raises(Refusal, match=rf"^{MIXED}$"):
        push_forward(lambda x: [x.mean(0)], [torch.tensor(given)])


def test_a_refusal_names_the_norm_that_could_take_the_gate():
    assert Refusal("a reason").norm == ""
    assert Refusal("a reason", "layer.1").norm == "layer.1"
