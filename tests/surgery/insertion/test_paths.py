"""Blocks that take another path than at insertion: with all their gates, or not at all."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor, nn

import attnlab
from attnlab import AttnlabError
from attnlab.gates import BranchGate
from attnlab.surgery.insertion import attachments
from attnlab.surgery.insertion._guard import acting_in, lost_gates

MESSAGE = (
    "The gate 'block.attnlab_0' acts after 'block.a', but this time the forward of Block did not "
    "run its 'a', as it did at insertion, and would answer without the gate. Insert again with an "
    "example that takes this path (example=...), or choose other sites with where=."
)


def linear(x: Tensor, layer: nn.Linear) -> Tensor:
    """What the layer computes, without the gate behind it."""
    return nn.functional.linear(x, layer.weight, layer.bias)


class Block(nn.Module):
    """Two steps, of which a call may leave out one or both, or make the first another way."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.other = (nn.Linear(8, 8) for _ in range(3))
        self.path = "both"

    def forward(self, x: Tensor, more: bool = False) -> Tensor:
        del more
        if self.path == "none":
            return x
        if self.path == "others":
            return x + self.other(x) + self.other(x)
        if self.path == "other":
            x = x + self.other(x)
        elif self.path == "fused":
            x = x + linear(x, self.a)
        elif self.path == "in training":
            x = x + (self.other(x) if self.training else self.a(x))
        elif self.path == "chance":
            if float(torch.rand(())) < 0.5:
                x = x + self.a(x)
        elif self.path != "second":
            x = x + self.a(x)
        if self.path == "early":
            return 2 * x
        return x if self.path == "first" else x + self.b(x)

    def by_hand(self, x: Tensor, first: Tensor, second: Tensor) -> Tensor:
        if self.path != "second":
            x = x + first * linear(x, self.a)
        if self.path == "early":
            return 2 * x
        return x if self.path == "first" else x + second * linear(x, self.b)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.block = nn.Linear(8, 8), Block()

    def forward(self, x: Tensor, **named: bool) -> Tensor:
        return self.block(self.stem(x), **named)


@pytest.fixture
def inputs() -> Tensor:
    torch.manual_seed(0)
    return torch.randn(2, 8)


def gated(inputs: Tensor) -> tuple[nn.Module, Tensor, Tensor]:
    network, receipt = attnlab.insert(Network().eval(), "scale", example=inputs)
    assert receipt.sites == ("block.a", "block.b")
    first, second = (p for name, p in network.named_parameters() if "attnlab" in name)
    for each in (first, second):
        each.data.uniform_(0.5, 2.0)
    return network, first.flatten(), second.flatten()


@pytest.mark.parametrize("named", [{}, {"more": True}], ids=["alone", "with a keyword"])
@pytest.mark.parametrize("path", ["other", "others", "fused", "in training"])
def test_a_step_that_is_made_without_its_gate_is_refused(inputs, path, named):
    network, *_ = gated(inputs)
    network.block.path = path
    network.train(path == "in training")
    with pytest.raises(AttnlabError) as error:
        network(inputs, **named)
    assert str(error.value) == MESSAGE
    network.block.path = "both"
    network(inputs, **named)


def test_a_gate_at_a_child_that_is_taken_out_acts_nowhere(inputs):
    network, *_ = gated(inputs)
    first, second = gates = [gate for _, gate in attachments(network)]
    assert lost_gates(list(network.modules()), gates) == []
    network.block.a, network.block.path = None, "second"
    assert set(acting_in(network.block)) == {second}
    assert lost_gates(list(network.modules()), gates) == [first]


def test_a_block_that_cannot_be_run_once_more_is_refused(inputs):
    network, *_ = gated(inputs)
    network.block.path = "second"
    with pytest.raises(AttnlabError) as error:
        network(inputs, more=threading.Lock())  # nobody can copy that
    assert str(error.value) == MESSAGE


class Fused(nn.Module):
    """A branch of two layers, the second of which may be left out for its weights."""

    fast = False

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.output = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.hidden(x)
        return linear(x, self.output) if self.fast else self.output(x)


def test_a_layer_inside_of_a_branch(inputs):
    network = Network().eval()
    network.block.a = Fused()
    network, receipt = attnlab.insert(network, "scale", where=["block.a.output"], example=inputs)
    assert receipt.sites == ("block.a.output",)
    network(inputs)
    network.block.a.fast = True
    with pytest.raises(AttnlabError, match="the forward of Fused did not run its 'output'"):
        network(inputs)
    network.block.path = "second"  # the branch is left out, and with it the layer
    network(inputs)


@pytest.mark.parametrize("named", [{}, {"more": True}], ids=["alone", "with a keyword"])
@pytest.mark.parametrize("path", ["both", "first", "second", "early"])
def test_a_step_that_is_left_out_needs_no_gate(inputs, path, named):
    network, first, second = gated(inputs)
    network.block.path = path
    expected = network.block.by_hand(network.stem(inputs), first, second)
    assert torch.equal(network(inputs, **named), expected)
    network(inputs, **named).sum().backward()  # with inputs that no copy can be made of


class Adding(BranchGate):
    """A gate that adds two maps of the shape of the branch."""

    def forward(self, branch: Tensor) -> Tensor:
        return torch.sigmoid(branch + branch.flip(1))

    def start_constant(self) -> float:
        return 0.5


def test_what_a_gate_adds_is_no_step_that_was_made():
    torch.manual_seed(0)
    network, images = Network().eval(), torch.randn(2, 8, 5, 5)
    network.stem = nn.Conv2d(8, 8, 1)
    network.block.a, network.block.b = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1)
    network, _ = attnlab.insert(network, Adding, example=images)
    network.block.path = "second"
    x = network.stem(images)
    branch = nn.functional.conv2d(x, network.block.b.weight, network.block.b.bias)
    expected = x + branch * network.block.attnlab_1.gate(branch)
    torch.testing.assert_close(network(images), expected)


def test_a_block_that_hands_on_what_it_was_given(inputs):
    network, *_ = gated(inputs)
    network.block.path = "none"
    assert torch.equal(network(inputs), network.stem(inputs))


def test_steps_that_are_left_out_by_chance(inputs):
    network, *_ = gated(inputs)
    network.block.path = "chance"
    network.train()
    outputs = set()
    for seed in range(20):
        torch.manual_seed(seed)
        outputs.add(float(network(inputs).detach().sum()))
        state = torch.random.get_rng_state()
        torch.manual_seed(seed)
        torch.rand(())
        assert torch.equal(state, torch.random.get_rng_state()), "the look drew numbers"
    assert len(outputs) == 2


@torch.no_grad()  # between two graphs torch warns of gradients
def test_compiled_blocks_are_looked_at_as_well(inputs):
    network, first, second = gated(inputs)
    compiled = torch.compile(network, backend="eager")
    expected = network.block.by_hand(network.stem(inputs), first, second)
    assert torch.equal(compiled(inputs), expected)
    network.block.path = "first"
    expected = network.block.by_hand(network.stem(inputs), first, second)
    assert torch.equal(compiled(inputs), expected)
    network.block.path = "other"
    with pytest.raises(AttnlabError) as error:
        compiled(inputs)
    assert str(error.value) == MESSAGE
