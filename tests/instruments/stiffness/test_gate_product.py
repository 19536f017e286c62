"""The product of the gates of one step, by loops."""

from __future__ import annotations

import torch
from torch import nn

from attnlab.instruments.stiffness.block_sums import GateShown, gate_product
from attnlab.residuals import GateSource, SeenGate


def shown(value: torch.Tensor) -> GateShown:
    source = GateSource("gate", "inserted", nn.Identity(), 2, "1.0", {})
    return GateShown(torch.Size((2, 5, 3)), SeenGate(source, value, None, None, "end"))


def test_windows_that_are_folded_into_the_batch_belong_to_their_input() -> None:
    """Of two inputs, each with three windows that follow one another; a gate in float16 is
    averaged in float32."""
    torch.manual_seed(0)
    value = torch.rand(6, 5, 3)
    expected = torch.stack([value[:3].flatten(0, 1).mean(0), value[3:].flatten(0, 1).mean(0)])
    torch.testing.assert_close(gate_product([shown(value)], 2, None), expected)
    halves = torch.rand(6, 5, 3).half()
    found = gate_product([shown(halves)], 2, None)
    exact = halves.double().unflatten(0, (2, 3)).mean((1, 2))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), exact, rtol=1e-6, atol=0)


def test_two_gates_of_tokens_multiply_and_padding_does_not_count() -> None:
    torch.manual_seed(0)
    one, two = torch.rand(2, 5, 3), torch.rand(2, 5, 3)  # inputs, tokens, channels
    counted = torch.tensor([[True, True, True, False, False], [True] * 5])
    found = gate_product([shown(one), shown(two)], 2, counted)
    for number in range(2):
        tokens = counted[number]
        expected = (one[number][tokens] * two[number][tokens]).mean(0)
        torch.testing.assert_close(found[number], expected)
    whole = gate_product([shown(one)], 2, None)
    torch.testing.assert_close(whole, one.mean(1))
