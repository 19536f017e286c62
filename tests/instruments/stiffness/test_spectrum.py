"""SI without the Jacobian against the eigenvalues of the full Jacobian."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from attnlab import _errors
from attnlab.instruments.stiffness.spectrum import krylov_stiffness_index


def full_index(function, state: torch.Tensor) -> torch.Tensor:
    """max |Re λ| of each input's full Jacobian, reshaped to a square before `eigvals`."""
    found = []
    for one in state:
        jacobian = torch.autograd.functional.jacobian(lambda x: function(x[None])[0], one)
        found.append(torch.linalg.eigvals(jacobian.reshape(one.numel(), -1)).real.abs().max())
    return torch.stack(found)


def branch(channels: int) -> nn.Sequential:
    torch.manual_seed(channels)
    return nn.Sequential(
        nn.Conv2d(channels, channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU(inplace=True),
        nn.Conv2d(channels, channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(channels),
    ).eval()


@pytest.mark.parametrize(("channels", "side"), [(2, 4), (4, 8), (6, 10)])
def test_small_branches_against_all_eigenvalues(channels, side):
    function = branch(channels).double()
    state = torch.randn(3, channels, side, side, dtype=torch.float64)
    found = krylov_stiffness_index(function, state)
    torch.testing.assert_close(found.value, full_index(function, state), rtol=5e-3, atol=0)
    assert (found.residual < 0.05).all()


def test_exact_when_the_space_is_complete():
    """32 dimensions, 50 vectors allowed: every eigenvalue is found to rounding."""
    function = branch(2).double()
    state = torch.randn(4, 2, 4, 4, dtype=torch.float64)
    found = krylov_stiffness_index(function, state)
    torch.testing.assert_close(found.value, full_index(function, state), rtol=1e-9, atol=0)
    assert (found.residual < 1e-9).all()


def test_the_real_part_counts_not_the_modulus():
    """A rotation of frequency 9 with damping 1 beside a decay of rate 2: SI is 2, not 9."""
    matrix = torch.tensor([[-1.0, 9, 0], [-9, -1, 0], [0, 0, -2]], dtype=torch.float64)
    found = krylov_stiffness_index(lambda x: x @ matrix.T, torch.randn(5, 3, dtype=torch.float64))
    torch.testing.assert_close(found.value, torch.full((5,), 2.0, dtype=torch.float64))


def test_float32_and_nonsymmetric():
    torch.manual_seed(3)
    matrix = torch.randn(200, 200) / 14 - torch.diag(torch.linspace(0, 40, 200))
    expected = torch.linalg.eigvals(matrix.double()).real.abs().max().float()
    found = krylov_stiffness_index(lambda x: x @ matrix.T, torch.randn(2, 200))
    torch.testing.assert_close(found.value.float(), expected.expand(2), rtol=5e-3, atol=0)


def test_batch_and_single_inputs_agree():
    function, state = branch(3), torch.randn(4, 3, 6, 6)
    together = krylov_stiffness_index(function, state).value
    alone = torch.cat([krylov_stiffness_index(function, one[None]).value for one in state])
    torch.testing.assert_close(together, alone, rtol=5e-3, atol=0)


def test_the_state_is_not_written_to():
    function = nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(2, 2, 3, padding=1))
    state = torch.randn(2, 2, 5, 5)
    before = state.clone()
    krylov_stiffness_index(function, state)
    assert torch.equal(state, before)


@pytest.mark.parametrize(("inputs", "channels"), [(4, 3), (2, 3), (2, 1)])
def test_training_batchnorm_is_refused(inputs, channels):
    with pytest.raises(_errors.InputError) as error:
        krylov_stiffness_index(branch(channels).train(), torch.randn(inputs, channels, 6, 6))
    assert str(error.value) == (
        "The map of one input depends on the other inputs of the batch, as in BatchNorm in "
        "training mode, so there is no Jacobian per input. Call model.eval() first."
    )


def test_shape_changes_are_refused():
    with pytest.raises(_errors.InputError) as error:
        krylov_stiffness_index(nn.Conv2d(2, 4, 1), torch.randn(1, 2, 5, 5))
    assert str(error.value) == (
        "Expected a map from a state to a state but got (1, 2, 5, 5) to (1, 4, 5, 5): a step that "
        "changes the shape has no SI."
    )


def test_a_map_without_gradient_is_refused():
    with pytest.raises(_errors.InputError, match="does not depend on its input"):
        krylov_stiffness_index(lambda x: x.detach(), torch.randn(1, 3))
