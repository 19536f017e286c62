"""Gates that do not train, and branches that start shorter: the controls for gates."""

from __future__ import annotations

import pytest
import timm
import torch
from torch import nn

import attnlab
from attnlab._errors import OptionError, SiteError
from attnlab.gates import GATES
from attnlab.surgery.insertion import set_branch_scale

X = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("gate", [*GATES, "asr:se", "asr:ie*2", "asr:se+se"])
def test_every_gate_can_be_kept_from_training(gate: str) -> None:
    """An optimizer step with weight decay moves everything but the gate."""
    torch.manual_seed(0)
    plain = attnlab.create("resnet20")
    # A gate of zero, where ReZero starts, hands no gradient to its branch.
    start = "identity" if gate == "rezero" else "paper"
    network, receipt = attnlab.insert(plain, gate, start=start, example=X, trainable=False)
    own = {name for name, _ in plain.named_parameters()}
    before = {name: value.detach().clone() for name, value in network.named_parameters()}
    optimizer = torch.optim.SGD(network.parameters(), 0.1, weight_decay=0.1, momentum=0.9)
    network.train()(X).square().mean().backward()
    optimizer.step()
    for name, value in network.named_parameters():
        assert torch.equal(value, before[name]) == (name not in own), name
    added = sum(value.numel() for name, value in network.named_parameters() if name not in own)
    assert receipt.parameters_added == added
    assert receipt.notes[-1] == (
        f"the gates do not train (trainable=False): their {added:,} parameters stay at their first "
        f"values"
    )


def test_the_first_values_are_those_of_the_gate_that_trains() -> None:
    states = []
    for trainable in (True, False):
        torch.manual_seed(0)
        network, receipt = attnlab.insert(
            attnlab.create("resnet20"), "asr:se", example=X, trainable=trainable
        )
        states.append(network.state_dict())
        assert bool(receipt.notes) != trainable
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_a_gate_that_does_not_train_folds() -> None:
    network, _ = attnlab.insert(attnlab.create("resnet20"), "asr:se", example=X, trainable=False)
    plain, receipt = attnlab.fold(network, example=X)
    assert all(parameter.requires_grad for parameter in plain.parameters())
    assert receipt.float64_change is not None
    assert receipt.float64_change < 1e-12


def test_frozen_networks_with_gates_that_do_not_train() -> None:
    network = attnlab.create("resnet20").requires_grad_(False)
    _, receipt = attnlab.insert(network, "se", example=X, trainable=False)
    assert receipt.notes[0].endswith("frozen parameters stay frozen")


def test_trainable_is_true_or_false() -> None:
    with pytest.raises(OptionError) as caught:
        attnlab.insert(attnlab.create("resnet20"), "se", trainable="no")
    assert str(caught.value) == "Expected trainable to be True or False but got 'no'."


def test_branch_scale_halves_every_branch_and_touches_nothing_else() -> None:
    network = attnlab.create("resnet20").eval()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    with torch.no_grad(), attnlab.capture(network, X) as captured:
        network(X)
    first = next(iter(captured))
    names = set_branch_scale(network, 0.5, X)
    assert names == [f"layer{s}.{b}.bn2" for s in (1, 2, 3) for b in (0, 1, 2)]
    for name, value in network.state_dict().items():
        if name.removesuffix(".weight") in names:
            assert torch.equal(value, torch.full_like(value, 0.5))
        else:
            assert torch.equal(value, before[name]), name
    with torch.no_grad(), attnlab.capture(network, X) as captured:
        network(X)
    torch.testing.assert_close(next(iter(captured)).branch, first.branch / 2)


def test_branch_scale_of_norms_that_hold_an_activation() -> None:
    """timm's norms hand what they made on through modules that do nothing."""
    network = timm.create_model("regnetx_002").eval()
    set_branch_scale(network, 1.0, X)  # timm begins with zero
    with torch.no_grad(), attnlab.capture(network, X) as captured:
        network(X)
    first = next(iter(captured))
    names = set_branch_scale(network, 0.5, X)
    blocks = [(s, b) for s, count in enumerate((1, 1, 4, 7), 1) for b in range(1, count + 1)]
    assert names == [f"s{s}.b{b}.conv3.bn" for s, b in blocks]
    assert all(bool((network.get_parameter(f"{name}.weight") == 0.5).all()) for name in names)
    with torch.no_grad(), attnlab.capture(network, X) as captured:
        network(X)
    torch.testing.assert_close(next(iter(captured)).branch, first.branch / 2)


class Bare(nn.Module):
    """Its branch ends in a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.conv(x)


def test_branch_scale_needs_a_norm_at_the_end() -> None:
    with pytest.raises(SiteError) as caught:
        set_branch_scale(nn.Sequential(Bare()), 0.5, X)
    assert str(caught.value) == (
        "The branch of step 1.0 (0) does not end in a norm with a scale of its own, so there is no "
        "scale to start at 0.5. Expected a network whose branches end in a norm, as those of "
        "resnet20."
    )
    with pytest.raises(OptionError) as refused:
        set_branch_scale(attnlab.create("resnet20"), 0.0, X)
    assert str(refused.value) == "Expected a scale of branches above 0 but got 0.0."
