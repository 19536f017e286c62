"""Which networks return sets: what they hand out has a length that depends on values."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from attnlab.residuals.example import run_once
from attnlab.residuals.selection import (
    before_selection,
    fixed_macs,
    returns_sets,
    work_depends_on_values,
)


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
        (lambda x: x[(x > 0).all(1)], True),
        (lambda x: x[:, (x > 0).all(0)], True),
        (lambda x: x[(x > 0).view(-1, 4)], True),
        (lambda x: x[(x > 0)[:, 0]], True),
        (lambda x: x[x[:, 0].argsort()], False),
        (lambda x: x.masked_select(x > 0), True),
        (lambda x: torch.unique(x), True),
    ],
)
def test_what_has_a_length_by_values_is_a_set(function, sets) -> None:
    torch.manual_seed(0)
    assert returns_sets(run_once(Returns(function), torch.randn(6, 4)).graph) is sets


class Chosen(nn.Module):
    """What a function selects from the scores of a head, or from the input; a layer follows."""

    def __init__(self, function, *, of_input: bool = False) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 4)
        self.after, self.function, self.of_input = nn.Linear(4, 2), function, of_input

    def forward(self, x: Tensor) -> Tensor:
        made = self.body(x).relu()
        return self.after(made[self.function(x if self.of_input else self.head(made))])


def mask(scores: Tensor) -> Tensor:
    return scores[:, 0] > 0


def order(scores: Tensor) -> Tensor:
    return scores[:, 0].argsort()


@pytest.mark.parametrize(
    ("function", "of_input", "depends", "calls"),
    [
        (mask, False, True, (("body", 0), ("head", 0))),
        (order, False, False, (("body", 0), ("head", 0))),
        (lambda s: s.max(1).indices % 2, False, False, (("body", 0), ("head", 0))),
        (lambda s: torch.min(s, dim=1)[1] % 2, False, False, (("body", 0), ("head", 0))),
        (order, True, False, (("after", 0),)),  # whatever the weights are
        (lambda _: slice(0, 3), False, False, (("head", 0), ("after", 0))),
    ],
)
def test_what_was_computed_before_anything_was_selected(function, of_input, depends, calls) -> None:
    torch.manual_seed(0)
    model, inputs = Chosen(function, of_input=of_input), torch.randn(6, 4)
    graph = run_once(model, inputs).graph
    assert before_selection(graph) == calls
    assert work_depends_on_values(graph) is depends
    rows = len(model(inputs))
    macs = (6 * 16 + 6 * 16 * (not of_input)) + rows * 8
    assert fixed_macs(model, inputs) == (None if depends else macs)


class Twice(nn.Module):
    """A head that runs on two levels; the largest value of each is no choice of a place."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> list[Tensor]:
        first = self.head(self.body(x))
        second = self.head(first[:3])
        return [first.topk(2).indices, second / second.max(), second.argmax()]


def test_calls_of_one_module_are_told_apart() -> None:
    assert before_selection(run_once(Twice(), torch.randn(6, 4)).graph) == (
        ("head", 0),
        ("head", 1),
    )


def test_a_set_without_a_layer_after_it_costs_the_same() -> None:
    graph = run_once(Returns(lambda x: x[x > 0]), torch.randn(6, 4)).graph
    assert returns_sets(graph)
    assert not work_depends_on_values(graph)
