"""SI of the steps of a network against full Jacobians and an independent eigensolver."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import LinearOperator, eigs
from torch import nn

import attnlab
from attnlab import _errors
from attnlab.instruments.stiffness.step_index import step_indices

from .test_capture import WAYS, Block


def network(how: str = "plain", last: nn.Module | None = None) -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 3, 1), Block(3, how, last), Block(3, how, last)).double()
    return net.eval()


def full(function, state: torch.Tensor) -> float:
    jacobian = torch.autograd.functional.jacobian(function, state)
    return torch.linalg.eigvals(jacobian.reshape(state.numel(), -1)).real.abs().max().item()


@pytest.mark.parametrize("how", [way for way in WAYS if way != "into the state"])
def test_branches_against_all_eigenvalues(how):
    """75 dimensions, so that the Krylov space is complete; the addition may be in place."""
    net = network(how, nn.ReLU(inplace=True))
    images = torch.randn(2, 1, 5, 5, dtype=torch.float64)
    found = step_indices(net, images)
    for block, step in zip(net[1:], found, strict=True):
        for number in range(2):
            state = block.diary[-1][0].detach()[number : number + 1]
            expected = full(lambda x, block=block: block.norm(block.conv(x)), state)
            assert step.spectral.value[number].item() == pytest.approx(expected, rel=1e-6)


def test_a_network_that_cannot_be_differentiated_says_so():
    net = network("into the state")
    found = step_indices(net, torch.randn(2, 1, 5, 5, dtype=torch.float64))
    assert {step.reason for step in found} == {
        "the state is overwritten in place, so it has no backward pass"
    }


def test_the_state_map_has_an_artefact_and_is_refused():
    net, images = network(last=nn.ReLU()), torch.randn(1, 1, 5, 5, dtype=torch.float64)
    with pytest.raises(_errors.OptionError) as error:
        step_indices(net, images, of="state")
    assert str(error.value) == (
        "The state after step 1.0 (1) is cut by a ReLU, so every switched-off unit has an "
        "eigenvalue of exactly -1 and SI is at least 1, whatever the network does. Use "
        "of='branch', or accept_artefact=True to see it."
    )
    with torch.no_grad():
        for block in net[1:]:
            block.norm.weight.fill_(1e-3)  # a branch that hardly moves the state
    branch = step_indices(net, images)
    state = step_indices(net, images, of="state", accept_artefact=True)
    assert all(step.spectral.value.item() < 0.05 for step in branch)
    assert all(step.spectral.value.item() >= 1 - 1e-9 for step in state)


def test_an_unknown_map_is_refused():
    with pytest.raises(_errors.UnknownNameError) as error:
        step_indices(network(), torch.randn(1, 1, 5, 5, dtype=torch.float64), of="branches")
    assert str(error.value) == (
        "Unknown map 'branches'. Did you mean 'branch'? Expected one of: branch, state."
    )


def test_training_batchnorm_is_refused_for_a_single_image_too():
    net = network().train()
    with pytest.raises(_errors.InputError) as error:
        step_indices(net, torch.randn(1, 1, 5, 5, dtype=torch.float64))
    assert str(error.value) == (
        "Expected the network in eval mode but '1.norm' is a BatchNorm in training mode, whose "
        "output for one input depends on all others. Call model.eval() first."
    )


def test_projection_steps_have_no_index():
    found = step_indices(attnlab.create("resnet20").eval(), torch.randn(1, 3, 32, 32))
    reasons = {step.step.label: step.reason for step in found if step.spectral is None}
    assert set(reasons) == {"2.0", "3.0"}
    assert reasons["2.0"] == "the shortcut is a projection, not the state itself"


def test_a_real_block_against_arpack():
    """Last stage of ResNet-56, 4,096 dimensions: within 1 % of implicitly restarted Arnoldi."""
    torch.manual_seed(0)
    net = attnlab.create("resnet56").eval()
    images = torch.randn(1, 3, 32, 32)
    states = {}
    block = net.get_submodule("layer3.5")
    block.register_forward_hook(lambda _, given, out: states.update(x=given[0].detach(), y=out))
    found = {step.step.name: step for step in step_indices(net, images)}["layer3.5"]
    x = states["x"].clone().requires_grad_(True)
    f = block.bn2(block.conv2(torch.relu(block.bn1(block.conv1(x)))))

    def product(vector):
        cotangent = torch.from_numpy(np.asarray(vector, dtype=np.float32)).view_as(f)
        return torch.autograd.grad(f, x, cotangent, retain_graph=True)[0].flatten().double().numpy()

    operator = LinearOperator((x.numel(), x.numel()), matvec=product, dtype=np.float64)
    ends = [
        eigs(operator, k=4, which=which, tol=1e-3, return_eigenvectors=False, v0=np.ones(x.numel()))
        for which in ("LR", "SR")
    ]
    expected = max(np.abs(values.real).max() for values in ends)
    assert found.spectral.value.item() == pytest.approx(expected, rel=0.01)
