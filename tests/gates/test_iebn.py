"""IEBN as a replacement for a BatchNorm."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from attnlab.gates import InstanceEnhancementBatchNorm


def worn(**options: Any) -> nn.BatchNorm2d:
    """A norm that has seen data."""
    norm = nn.BatchNorm2d(5, **options)
    norm(3 + 2 * torch.randn(4, 5, 6, 6, dtype=options.get("dtype", torch.float32)))
    if norm.weight is not None:
        with torch.no_grad():
            norm.weight.uniform_(0.5, 2)
            norm.bias.uniform_(-1, 1)
    return norm


def test_from_batch_norm_keeps_everything() -> None:
    norm = worn(eps=1e-3, momentum=0.3, dtype=torch.float64).eval()
    norm.weight.requires_grad_(False)
    new = InstanceEnhancementBatchNorm.from_batch_norm(norm)
    assert (new.eps, new.momentum, new.training) == (1e-3, 0.3, False)
    assert new.weight is norm.weight
    assert new.bias is norm.bias
    assert not new.weight.requires_grad
    assert list(new.state_dict()) == [
        "weight",
        "bias",
        "running_mean",
        "running_var",
        "num_batches_tracked",
        "gate_scale",
        "gate.weight",
        "gate.bias",
    ]
    for name, value in norm.state_dict().items():
        assert torch.equal(new.state_dict()[name], value)
    assert new.gate.weight.dtype == torch.float64


@pytest.mark.parametrize("options", [{}, {"affine": False}, {"track_running_stats": False}])
def test_identity_start_is_the_plain_norm(options: dict[str, object]) -> None:
    norm = worn(**options)
    new = InstanceEnhancementBatchNorm.from_batch_norm(norm)
    new.start_identity()
    x = torch.randn(4, 5, 6, 6)
    for training in (True, False):
        torch.testing.assert_close(new.train(training)(x), norm.train(training)(x))
    new(x).square().sum().backward()
    assert new.gate.weight.grad is not None
    assert new.gate.weight.grad.abs().min() > 0


def test_identity_start_survives_a_checkpoint() -> None:
    new = InstanceEnhancementBatchNorm.from_batch_norm(worn())
    new.start_identity()
    other = InstanceEnhancementBatchNorm(5)
    other.load_state_dict(new.state_dict())
    x = torch.randn(4, 5, 6, 6)
    assert torch.equal(other.eval()(x), new.eval()(x))


def test_gate_reads_the_input_before_normalisation() -> None:
    """A shift of the input does not change x̂, but it does change the gate."""
    norm = InstanceEnhancementBatchNorm(5).double()
    nn.init.ones_(norm.gate.weight)
    x = torch.randn(4, 5, 6, 6, dtype=torch.float64)
    assert (norm(x) - norm(x + 1)).abs().max() > 0.05


def test_its_settings_are_those_of_the_norm_unless_told() -> None:
    names = ("eps", "momentum", "affine", "track_running_stats", "num_features")
    plain, own = nn.BatchNorm2d(5), InstanceEnhancementBatchNorm(5)
    assert [getattr(own, name) for name in names] == [getattr(plain, name) for name in names]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("options", [{}, {"affine": False}, {"track_running_stats": False}])
def test_the_plain_norm_comes_back(options: dict[str, Any], training: bool) -> None:
    norm = worn(eps=1e-2, momentum=0.4, **options).train(training)
    again = InstanceEnhancementBatchNorm.from_batch_norm(norm).plain()
    assert type(again) is nn.BatchNorm2d
    assert (again.eps, again.momentum, again.training) == (1e-2, 0.4, training)
    assert again.weight is norm.weight
    assert again.bias is norm.bias
    x = torch.randn(4, 5, 6, 6)
    assert torch.equal(again.eval()(x), norm.eval()(x))


def test_norm_that_does_more_is_refused() -> None:
    class NormAndActivation(nn.BatchNorm2d):
        pass

    with pytest.raises(ValueError) as error:
        InstanceEnhancementBatchNorm.from_batch_norm(NormAndActivation(5))
    assert str(error.value) == (
        "Expected a torch.nn.BatchNorm2d to enhance but got NormAndActivation, which may do more "
        "than normalise. Select the sites whose norm is a plain BatchNorm2d."
    )


@pytest.mark.parametrize("shape", [(2, 5, 1, 1), (1, 5, 2, 1), (1, 5, 1, 2)], ids=str)
def test_two_values_per_channel_have_statistics(shape: tuple[int, ...]) -> None:
    """As for torch's own norm, whichever axis they lie along; at its start it is that norm."""
    images = torch.randn(shape, dtype=torch.float64)
    norm = InstanceEnhancementBatchNorm(5).double().train()
    norm.start_identity()
    torch.testing.assert_close(norm(images), nn.BatchNorm2d(5).double()(images))
