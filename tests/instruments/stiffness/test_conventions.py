"""NSI of the conventions on a step worked out by hand."""

from __future__ import annotations

import pytest
import torch

from attnlab import _errors
from attnlab.instruments.stiffness.conventions import StepNorms, nsi


def step(gate: float, shortcut: torch.Tensor, branch: torch.Tensor) -> StepNorms:
    after = (shortcut + gate * branch).relu()
    return StepNorms(
        *(
            tensor.norm(dim=1, keepdim=True)
            for tensor in (shortcut, branch, gate * branch, after - shortcut, 7 * shortcut)
        )
    )


def test_by_hand():
    x, f = torch.tensor([[3.0, 4.0]]), torch.tensor([[-6.0, 8.0]])
    norms = step(0.5, x, f)
    assert nsi(norms, "paper").item() == 2.0
    assert nsi(norms, "branch").item() == 1.0
    assert nsi(norms, "normed").item() == 7.0
    # x + f/2 = (0, 8): the ReLU changes nothing here, so the state moves by the update.
    assert nsi(norms, "state").item() == 1.0
    # x + f = (-3, 12) is cut to (0, 12): the state moves by (-3, 8).
    assert nsi(step(1.0, x, f), "state").item() == pytest.approx(73**0.5 / 5)


def test_dividing_by_a_gate_of_one_half_doubles_paper_but_not_branch():
    x, f = torch.rand(5, 4), torch.rand(5, 4)
    plain, gated = step(1.0, x, f), step(0.5, x, 2 * f)
    torch.testing.assert_close(nsi(gated, "branch"), nsi(plain, "branch"))
    torch.testing.assert_close(nsi(gated, "paper"), 2 * nsi(plain, "paper"))


def test_zero_state_is_nan_with_a_finite_gradient_elsewhere():
    x = torch.tensor([[2.0], [0.0]], requires_grad=True)
    f = torch.tensor([[1.0], [1.0]])
    values = nsi(StepNorms(x.abs(), f, f, f, f), "branch")
    assert values[0].item() == 0.5
    assert values[1].isnan()
    values[0].sum().backward()
    assert torch.equal(x.grad, torch.tensor([[-0.25], [0.0]]))


def test_unknown_convention():
    ones = torch.ones(1, 1)
    with pytest.raises(_errors.UnknownNameError) as error:
        nsi(StepNorms(ones, ones, ones, ones, ones), "paperr")
    assert str(error.value) == (
        "Unknown NSI convention 'paperr'. Did you mean 'paper'? Expected one of: state, normed, "
        "branch, paper."
    )
