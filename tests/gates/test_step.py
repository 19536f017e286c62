"""StepNet's adaptor: which output looks at which input."""

from __future__ import annotations

import pytest
import torch

from attnlab.gates import build_gate


def dependence(inputs: str, structure: str = "conv-ie") -> tuple[torch.Tensor, torch.Tensor]:
    """|∂ gate_i / ∂ x_j| for the shortcut and the branch, as channel by channel matrices."""
    gate = build_gate("step", 6, inputs=inputs, structure=structure).double().eval()
    with torch.no_grad():
        for parameter in gate.parameters():
            parameter.uniform_(0.5, 1.0)
    # Positive, so that no hidden unit is off.
    shortcut, branch = torch.rand(2, 1, 6, 3, 3, dtype=torch.float64)
    jacobians = torch.autograd.functional.jacobian(
        lambda x, f: gate(x, f)[0, :, 0, 0], (shortcut, branch)
    )
    return tuple(j.abs().sum(dim=(1, 3, 4)) > 0 for j in jacobians)


def test_each_channel_sees_itself_in_both_states_and_nothing_else() -> None:
    """Concatenation and C groups would let half of the outputs see x_t only."""
    shortcut, branch = dependence("both")
    assert torch.equal(shortcut, torch.eye(6, dtype=torch.bool))
    assert torch.equal(branch, torch.eye(6, dtype=torch.bool))


@pytest.mark.parametrize(
    ("inputs", "sees_shortcut", "sees_branch"),
    [("shortcut", True, False), ("next", True, True), ("difference", False, True)],
)
def test_inputs_decide_what_is_seen(inputs: str, sees_shortcut: bool, sees_branch: bool) -> None:
    shortcut, branch = dependence(inputs)
    assert bool(shortcut.any()) is sees_shortcut
    assert bool(branch.any()) is sees_branch


def test_next_state_weighs_shortcut_and_branch_alike() -> None:
    """F(x_{t+1}) depends on x_t and f through their sum only."""
    gate = build_gate("step", 6, inputs="next").double().eval()
    shortcut, branch, shift = torch.randn(3, 2, 6, 3, 3, dtype=torch.float64)
    torch.testing.assert_close(gate(shortcut + shift, branch - shift), gate(shortcut, branch))


def test_mlp_mixes_channels() -> None:
    shortcut, branch = dependence("both", "mlp")
    assert bool(shortcut.all())
    assert bool(branch.all())


def test_conv_iebn_starts_around_one_half() -> None:
    gate = build_gate("step", 64, structure="conv-iebn").train()
    value = gate(torch.randn(64, 64, 4, 4), torch.randn(64, 64, 4, 4))
    assert abs(value.mean().item() - 0.5) < 0.005
    assert value.std().item() > 0.01
