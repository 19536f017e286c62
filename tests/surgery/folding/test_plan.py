"""What parameters are multiplied by, from the ids of their elements: by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torchvision.ops import FrozenBatchNorm2d

from attnlab.residuals.listing import list_modules
from attnlab.surgery.folding._ids import NOT_READ, Refusal
from attnlab.surgery.folding._own_gates import ComputedGate
from attnlab.surgery.folding._plan import (
    _check_inverse,
    by_ids,
    check_sign,
    factors,
    foldable_parameters,
    frozen_scales,
    multiply,
    offsets,
    values,
)
from attnlab.surgery.folding._walk import Scaling

GATES = torch.tensor([2.0, 0.5, -4.0], dtype=torch.float64)
KEEP = 3


def place(key: int, vector: Tensor = GATES, at_zero: float | None = None) -> SimpleNamespace:
    """A place, as far as it is asked here."""
    gate = None if at_zero is None else SimpleNamespace(at_zero=at_zero)
    return SimpleNamespace(key=key, own_gate=gate, vector=lambda: vector)


def ids(*values: int) -> Tensor:
    return torch.tensor(values)


def test_each_id_stands_for_its_gate_and_those_of_no_gate_for_one() -> None:
    expected = [-4.0, 2.0, 1.0, 1.0, 0.5]
    assert by_ids(GATES)[ids(2, 0, KEEP, NOT_READ, 1)].tolist() == expected
    assert values(place(0))[ids(2, 0, KEEP, NOT_READ, 1)].tolist() == expected
    # Of a gate of the network's own: relative to what is left where its logits are zero.
    half = values(place(0, at_zero=0.5))[ids(2, 0, KEEP, NOT_READ, 1)]
    assert half.tolist() == [-8.0, 4.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("vector", "asked", "negative"),
    [
        ([2.0, 0.0, -4.0, -1.0], (0, 1), 0),
        ([2.0, 0.0, -4.0, -1.0], (0, 2), 1),
        ([2.0, 0.0, -4.0, -1.0], (1, 2, 3), 2),
        ([-2.0, 0.0, -4.0, -1.0], (), 0),
    ],
)
def test_negative_gates_are_counted_where_only_others_pass(vector, asked, negative) -> None:
    given = torch.tensor(vector), frozenset(asked)
    if not negative:
        check_sign(*given)
        return
    with pytest.raises(Refusal) as raised:
        check_sign(*given)
    assert str(raised.value) == (
        f"{negative} of its gates are negative, and there is an operation such as relu in between, "
        "which lets only positive scalings through"
    )


def test_factors_of_several_gates_are_multiplied() -> None:
    decided = {
        0: Scaling({"a": ids(0, 1, KEEP), "b": ids(2, 2, 2)}, frozenset(), offsets={"a": 1.0}),
        1: Scaling(
            {"a": ids(2, KEEP, 0)},
            frozenset(),
            inverse={"c": ids(0, 1, NOT_READ)},
            offsets={"d": -2.0},
            silenced={
                "e": torch.tensor([True, False, True]),
                "b": torch.tensor([False, True, False]),
            },
        ),
        2: Refusal("stays"),
    }
    found = factors([place(0), place(1), place(2), place(3)], decided)  # type: ignore[list-item]
    assert {name: factor.tolist() for name, factor in found.items()} == {
        "a": [-8.0, 0.5, 2.0],
        "b": [-4.0, 0.0, -4.0],
        "c": [0.5, 2.0, 1.0],
        "e": [0.0, 1.0, 0.0],
    }
    assert all(factor.dtype == torch.float64 for factor in found.values())
    assert offsets(decided) == {"a": 1.0, "d": -2.0}  # type: ignore[arg-type]


def test_parameters_are_multiplied_with_their_offset_and_rounded_once() -> None:
    network = nn.LayerNorm(3).half()
    with torch.no_grad():
        network.weight.copy_(torch.tensor([0.1, -0.3, 3.0]))
        network.bias.copy_(torch.tensor([0.1, -0.3, 3.0]))
    before = network.weight.detach().double()
    factor = torch.tensor([1 / 3, 7.0, 1e-3], dtype=torch.float64)
    multiply(network, {"weight": factor, "bias": factor}, {"weight": 1.0})
    assert torch.equal(network.weight, ((before + 1) * factor - 1).half())
    assert torch.equal(network.bias, (before * factor).half())


class Frozen(FrozenBatchNorm2d):
    """Without a shift."""

    def __init__(self) -> None:
        super().__init__(4)
        self.bias = None


class Unsaved(FrozenBatchNorm2d):
    """Its numbers are in no state dict."""

    def __init__(self) -> None:
        super().__init__(4)
        self._non_persistent_buffers_set.add("weight")


def test_scales_of_frozen_norms() -> None:
    network = nn.ModuleDict(
        {
            "norm": nn.BatchNorm2d(4),
            "plain": nn.BatchNorm2d(4, affine=False),
            "frozen": FrozenBatchNorm2d(4),
            "unshifted": Frozen(),
            "unsaved": Unsaved(),
            "act": nn.ReLU(),
        }
    )
    assert list(frozen_scales(list_modules(network))) == [
        "frozen.weight",
        "frozen.bias",
        "unshifted.weight",
    ]
    assert list(frozen_scales(list_modules(FrozenBatchNorm2d(4)))) == ["weight", "bias"]
    assert foldable_parameters(network) == {
        "norm.weight",
        "norm.bias",
        "frozen.weight",
        "frozen.bias",
        "unshifted.weight",
    }


def test_what_belongs_to_one_module_and_shares_no_memory() -> None:
    network = nn.Sequential(*(nn.Linear(2, 2, bias=False) for _ in range(6)))
    network[1].weight = network[0].weight
    memory = torch.zeros(14)
    for number, start in ((2, 0), (3, 3), (4, 7)):  # 2 and 3 overlap, 4 begins where 3 ends
        network[number].weight.data = memory[start : start + 4].view(2, 2)
    assert foldable_parameters(network) == {"4.weight", "5.weight"}
    network[5].weight.data = memory[4:8].view(2, 2)
    assert foldable_parameters(network) == set()
    network[3].weight.data = torch.zeros(2, 2)
    network[4].weight.data = torch.zeros(0, 2)
    assert foldable_parameters(network) == {f"{n}.weight" for n in (2, 3, 4, 5)}


def test_a_gate_too_small_for_what_must_be_divided_by_it() -> None:
    tensors = {"w": torch.tensor([8.0, 1e4], dtype=torch.float16)}
    for gate, fits in ((2.0**-10, True), (1e-4, False), (-1e-4, False)):
        vector = torch.tensor([gate, 1.0], dtype=torch.float64)
        given = place(0, vector), Scaling({}, frozenset(), inverse={"w": ids(0, 2)}), tensors
        if fits:
            _check_inverse(*given)  # type: ignore[arg-type]
            continue
        with pytest.raises(Refusal) as raised:
            _check_inverse(*given)  # type: ignore[arg-type]
        assert str(raised.value) == (
            "'w' would have to be divided by gates as small as 1e-04, which torch.float16 does not "
            "hold"
        )


@pytest.mark.parametrize(
    ("shape", "axes", "numbers", "expected"),
    [
        ((2, 5, 3), (2,), 3, [0, 1, 2]),
        ((2, 5, 1), (), 1, [0, 0, 0]),
        ((3,), (0,), 3, [0, 1, 2]),
    ],
)
def test_the_numbers_of_a_gate_of_the_network(shape, axes, numbers, expected) -> None:
    multiplier = SimpleNamespace(channel_axes=axes, shape=shape, numbers=numbers)
    gate = ComputedGate("gate", multiplier, 0.5)  # type: ignore[arg-type]
    found = gate.ids((2, 5, 3))
    assert found.shape == (2, 5, 3)
    assert found[1, 4].tolist() == found[0, 0].tolist() == expected


def test_the_numbers_of_a_gate_for_heads() -> None:
    multiplier = SimpleNamespace(channel_axes=(2, 3), shape=(2, 5, 2, 3), numbers=6)
    found = ComputedGate("gate", multiplier, 0.5).ids((2, 5, 2, 3))  # type: ignore[arg-type]
    assert found[1, 3].tolist() == [[0, 1, 2], [3, 4, 5]]
