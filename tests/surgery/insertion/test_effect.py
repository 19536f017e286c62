"""In training, the output depends on what every gate returns, or the network refuses."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import attnlab
from attnlab import AttnlabError

MESSAGE = (
    "The gate 'block.attnlab' acts after 'block.a', but in training the output of Network does "
    "not depend on what it returns: something else is added there than at insertion. Choose a "
    "place that the network passes in both modes with where=, or a gate at the addition itself, "
    "such as 'step'."
)


class Block(nn.Module):
    """A step that runs its layer `a` in both modes, and in training does this with it."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.a, self.other = nn.Linear(8, 8), nn.Linear(8, 8)
        self.way = way

    def forward(self, x: Tensor) -> Tensor:
        branch = self.a(x)
        if not self.training or self.way == "as at insertion":
            return x + branch
        if self.way == "both":
            return x + branch + self.other(x)
        if self.way == "detached":
            return x + branch.detach()
        if self.way == "kept":
            self.kept = branch.mean()
        return x + self.other(x)


class Network(nn.Module):
    """Two steps; the second is as at insertion."""

    def __init__(self, way: str = "as at insertion") -> None:
        super().__init__()
        self.stem, self.block, self.last = nn.Linear(8, 8), Block(way), Block("as at insertion")
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x: Tensor, more: object = None) -> Tensor:
        del more
        return self.norm(self.last(self.block(self.stem(x))).relu())


@pytest.fixture
def inputs() -> Tensor:
    torch.manual_seed(0)
    return torch.randn(4, 8)


def gated(way: str, inputs: Tensor, gate: str = "scale") -> nn.Module:
    network, receipt = attnlab.insert(Network(way).eval(), gate, example=inputs)
    assert len(receipt.sites) == 2
    return network.train()


@pytest.mark.parametrize("way", ["left", "kept"])
def test_a_gate_whose_module_runs_for_nothing_is_refused(inputs, way):
    network = gated(way, inputs)
    for _ in range(2):
        with pytest.raises(AttnlabError) as error:
            network(inputs)
        assert str(error.value) == MESSAGE
    network.eval()(inputs)


def test_what_cannot_be_run_once_more_is_refused(inputs):
    with pytest.raises(AttnlabError, match="does not depend on what it returns"):
        gated("left", inputs)(inputs, more=threading.Lock())  # nobody can copy that


@pytest.mark.parametrize("way", ["as at insertion", "both", "detached"])
def test_a_gate_that_matters_is_not_refused(inputs, way):
    """Of a detached branch the values matter, though no gradient says so."""
    network = gated(way, inputs)
    gate = next(p for name, p in network.named_parameters() if "attnlab" in name)
    nn.init.constant_(gate, 0.25)
    before = copy.deepcopy(network.state_dict())

    x = network.stem(inputs)
    branch = 0.25 * nn.functional.linear(x, network.block.a.weight, network.block.a.bias)
    more = network.block.other(x) if way == "both" else 0.0
    by_hand = network.norm(network.last(x + branch + more).relu())

    network.load_state_dict(before)
    torch.testing.assert_close(network(inputs), by_hand)
    assert network.norm.num_batches_tracked == 1  # looking once more moved no statistics


class Ends(nn.Module):
    """A detached branch whose values matter, and what is made of them."""

    def __init__(self, end: nn.Module, shift: float = 0.0) -> None:
        super().__init__()
        self.block, self.end, self.bias = Block("detached"), end, nn.Parameter(torch.ones(3))
        nn.init.constant_(self.block.a.bias, shift)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.bias * 2, self.end(self.block(x))


@pytest.mark.parametrize(
    ("end", "shift"), [(nn.BatchNorm1d(8), 0.0), (nn.LayerNorm(8), 0.0), (nn.ReLU(), -100.0)]
)
def test_one_of_several_outputs_is_enough_after_a_norm_or_a_rectifier(inputs, end, shift):
    network, _ = attnlab.insert(Ends(end, shift).eval(), "scale", example=inputs)
    network.train()(inputs)


class Unsteady(Network):
    """In training its output has a NaN, or a little of what no two runs have in common."""

    def __init__(self, way: str, noise: float) -> None:
        super().__init__(way)
        self.noise, self.numbers = noise, iter(range(1, 100))

    def __deepcopy__(self, memo: dict[int, object]) -> Unsteady:
        made = Unsteady(self.block.way, self.noise)
        memo[id(self.numbers)] = made.numbers = self.numbers  # so that copies go on with these
        memo[id(self)] = made
        for name, child in self.named_children():
            setattr(made, name, copy.deepcopy(child, memo))
        return made.train(self.training)

    def forward(self, x: Tensor, more: object = None) -> Tensor:
        output = super().forward(x, more)
        if not self.training:
            return output
        return output.where(torch.eye(4, 8) == 0, output + self.noise * next(self.numbers))


@pytest.mark.parametrize("noise", [1e-7, 1.0, float("nan")])
def test_what_differs_between_two_equal_runs_is_no_effect(inputs, noise):
    network, _ = attnlab.insert(Unsteady("left", noise).eval(), "scale", example=inputs)
    with pytest.raises(AttnlabError) as error:
        network.train()(inputs)
    assert str(error.value).startswith(MESSAGE.replace("Network", "Unsteady"))
    assert "differs between two equal runs" in str(error.value)


@pytest.mark.parametrize("noise", [1e-7, float("nan")])
def test_an_effect_is_seen_beside_what_differs_between_two_equal_runs(inputs, noise):
    network, _ = attnlab.insert(Unsteady("detached", noise).eval(), "scale", example=inputs)
    network.train()(inputs)


def test_torch_func_is_left_alone(inputs):
    network = gated("as at insertion", inputs)
    network.norm.eval()
    parameters = dict(network.named_parameters())

    def loss(weights: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(network, weights, (inputs,)).square().sum()

    found = torch.func.grad(loss)(parameters)
    loss(parameters).backward()
    for name, parameter in parameters.items():
        if parameter.grad is not None:
            torch.testing.assert_close(found[name], parameter.grad)


def test_a_step_gate_acts_on_whatever_is_added(inputs):
    network = gated("left", inputs, "step")
    network(inputs).sum().backward()
    assert all(p.grad is not None for name, p in network.named_parameters() if "attnlab" in name)


def test_it_looks_once_and_again_when_modules_change(inputs):
    network = gated("as at insertion", inputs)
    network(inputs)
    network.block.way = "left"  # nothing says so
    network(inputs)
    network.block.a = nn.Linear(8, 8)  # the gate follows its name; the block is the same
    network(inputs)
    network.block = nn.Sequential(network.block)
    network(inputs)  # shows that all gates act
    with pytest.raises(AttnlabError, match="does not depend on what it returns"):
        network(inputs)


def test_it_waits_for_a_run_with_gradients(inputs):
    network = gated("left", inputs)
    with torch.no_grad():
        network(inputs)
    with pytest.raises(AttnlabError, match="does not depend on what it returns"):
        network(inputs)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_blocks(inputs, reentrant):
    class Checkpointed(Network):
        def forward(self, x: Tensor, more: object = None) -> Tensor:
            if not self.training:
                return super().forward(x, more)
            x = checkpoint(self.block, self.stem(x), use_reentrant=reentrant)
            return self.norm(self.last(x).relu())

    network, _ = attnlab.insert(Checkpointed().eval(), "scale", example=inputs)
    network.train()(inputs).sum().backward()
    assert all(p.grad is not None for name, p in network.named_parameters() if "attnlab" in name)


def test_all_of_a_detached_part_costs_three_runs(inputs):
    """The gates in front of one that matters go on through it."""

    class Frozen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.Sequential(*(Block("as at insertion") for _ in range(5)))
            self.head = nn.Linear(8, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.blocks(x).detach())

    network, _ = attnlab.insert(Frozen().eval(), "scale", example=inputs)
    runs: list[int] = []
    network.train().head.register_forward_hook(lambda *_: runs.append(1))  # copies have it too
    network(inputs)
    assert len(runs) == 4  # its own, and three
    network(inputs)
    assert len(runs) == 5
