"""The contest of the operators with others: the least work, the differences, who is left out."""

from __future__ import annotations

import pytest
import torch

from attnlab.evolution.device import contest
from attnlab.evolution.device.peers import NotHereError, Peer

CASE = contest.Case(2, 32, 3, 3)


def test_the_least_work():
    """2×32×3×3, window 3: 576 numbers a map, two groups of 9 maps with 324; a product and a sum
    count as two, and the backward of a product as two products."""
    assert (CASE.groups, CASE.heads, CASE.numbers) == (2, 1, 576)
    assert CASE.maps_shape() == (2, 2, 9, 3, 3)
    assert (contest.Case(1, 64, 3, 3).heads, contest.Case(1, 8, 3, 3).groups) == (2, 1)
    flops = 2 * 9 * 576
    for operator, backward, numbers, products in (
        ("involution", False, 324 + 2 * 576, 1),
        ("involution", True, 3 * 324 + 5 * 576, 3),
        ("attention", False, 4 * 576, 2),
        ("attention", True, 12 * 576, 6),
    ):
        found = contest.least_work(CASE, operator, backward, 4)
        assert found == (4 * numbers, products * flops), (operator, backward)


def test_differences_inside_and_at_the_border_are_told_apart():
    """Relative to the largest number of ours, 4; of 7×8 pixels a border of two is left out."""
    ours = torch.full((1, 2, 7, 8), -4.0)
    for place, expected in (
        ((2, 2), (0.25, 0)),
        ((4, 5), (0.25, 0)),
        ((1, 4), (0, 0.25)),
        ((5, 4), (0, 0.25)),
        ((3, 1), (0, 0.25)),
        ((3, 6), (0, 0.25)),
    ):
        out = ours.clone()
        out[0, 1, *place] += 1
        assert contest._differences(out, ours, 2) == expected, place


def test_differences_where_no_window_is_whole():
    inside, border = contest._differences(torch.ones(1, 1, 2, 2), torch.ones(1, 1, 2, 2), 3)
    assert (inside, border) == (None, 0)


def times(*others):
    """Of a product of two numbers, and of other ways to compute it."""
    x, y = torch.full((2, 1, 1, 4, 4), 3.0)
    peers = dict(zip("abc", others, strict=False))
    builders = {"attnlab": lambda: Peer(torch.mul), **peers}
    found = contest._compare("product", builders, (x, y), torch.ones(1, 1, 4, 4), CASE, 1)
    return {each.name: each for each in found}


def test_what_fails_is_left_out_with_a_word():
    def nowhere():
        raise NotHereError("not installed")

    def no_backward(x, y):
        return (x * y).detach()

    def broken(*_):
        raise ValueError("out of\nmemory")

    found = times(nowhere, lambda: Peer(no_backward), lambda: Peer(broken))
    ours, a, b, c = found.values()
    assert (ours.operator, ours.name, ours.inside, ours.border, ours.remark) == (
        *("product", "attnlab", 0, 0, ""),
    )
    assert ours.forward > 0
    assert ours.both > 0
    assert (a.forward, a.both, a.inside, a.remark) == (None, None, None, "not installed")
    assert b.forward > 0
    assert (b.both, b.inside) == (None, 0)
    assert b.remark.startswith("no backward pass: RuntimeError: element 0 of tensors does not")
    assert (c.forward, c.both, c.remark) == (None, None, "ValueError: out of")


def test_others_are_compared_with_ours():
    found = times(lambda: Peer(lambda x, y: x * y + 0.9))
    assert (found["a"].inside, found["a"].border) == pytest.approx((0.1, 0.1))


def test_ours_is_never_left_out():
    def broken(*_):
        raise ValueError("wrong")

    builders = {"attnlab": lambda: Peer(broken)}
    operands = (torch.ones(1, 1, 4, 4),) * 2
    with pytest.raises(ValueError, match="wrong"):
        list(contest._compare("product", builders, operands, operands[0], CASE, 1))
