"""The short way to a gated addition: the same numbers as under the function mode, or a word."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import attnlab
from attnlab._errors import SiteError
from attnlab.surgery.insertion import _exchange, attachments
from attnlab.surgery.insertion._marked import MARK, GatedAddition, MarkedBranch, MarkHook

CHANNELS = 6


class Adding(nn.Module):
    """A block whose addition is written as `how` says."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.conv = nn.Conv2d(CHANNELS, CHANNELS, 1)
        self.norm = nn.BatchNorm2d(CHANNELS)
        self.how = how
        self.other_path = ""

    def forward(self, x):
        branch = self.norm(self.conv(x))
        if self.other_path == "alone":
            branch = torch.tanh(branch)
        if self.other_path == "with another":
            branch = branch * x
        if self.how == "branch first":
            return branch + x
        if self.how == "shortcut first":
            return torch.add(x, branch)
        if self.how == "x + branch":
            return x + branch
        if self.how == "+= branch":
            branch += x
            return branch
        x = x.clone()
        x.add_(branch)
        return x


HOWS = ("branch first", "shortcut first", "x + branch", "+= branch", "add_")


def gated(how: str, gate: str = "step") -> nn.Module:
    torch.manual_seed(0)
    plain = nn.Sequential(Adding(how), Adding(how)).eval()
    network, _ = attnlab.insert(plain, gate, example=torch.randn(2, CHANNELS, 5, 5))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return network


@pytest.mark.parametrize("how", HOWS)
def test_a_block_that_is_called_by_name_answers_the_same(how: str) -> None:
    network = gated(how)
    x = torch.randn(3, CHANNELS, 5, 5)
    with torch.no_grad():
        wanted = network(x)
        for block in network:
            x = block(x=x)
    assert torch.equal(x, wanted)


@pytest.fixture
def images():
    return torch.randn(3, CHANNELS, 5, 5, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def short_ways(monkeypatch):
    """The modules that went the short way."""
    went = []
    one, several = MarkHook.run, _exchange.run_marked

    def counted(hook, owner, *rest):
        went.append(owner)
        return one(hook, owner, *rest)

    def counted_all(owner, *rest):
        went.append(owner)
        return several(owner, *rest)

    monkeypatch.setattr(MarkHook, "run", counted)
    monkeypatch.setattr(_exchange, "run_marked", counted_all)
    return went


@pytest.mark.parametrize("how", HOWS)
def test_the_short_way_is_x_plus_gated_branch(how, images, short_ways):
    network = gated(how)
    short_ways.clear()  # insertion looks at the result
    want = images
    with torch.no_grad():
        for block in network:
            branch = block.norm(block.conv(want))
            (gate,) = [each.gate_module for _, each in attachments(block)]
            want = want + branch * gate(want, branch)
        got = network(images)
    assert len(short_ways) == 2
    assert type(got) is torch.Tensor
    assert torch.allclose(got, want, atol=1e-6)


@pytest.mark.parametrize("how", HOWS)
def test_the_mode_gives_the_same_to_the_bit(how, images, short_ways):
    network = gated(how)
    short_ways.clear()
    with torch.no_grad():
        short = network(images)
        assert len(short_ways) == 2
        for block in network:
            del block.norm._forward_hooks[MARK]
        assert torch.equal(network(images), short)
    assert len(short_ways) == 2


def test_gradients_are_those_of_the_mode(images):
    network = gated("+= branch")
    long = copy.deepcopy(network)
    for block in long:
        del block.norm._forward_hooks[MARK]
    for each in (network, long):
        each(images).square().sum().backward()
    for (name, one), other in zip(network.named_parameters(), long.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad), name


def test_in_training_every_addition_is_counted(images, short_ways):
    network = gated("branch first").train()
    short_ways.clear()
    network(images)
    assert not short_ways


@pytest.mark.parametrize("where", ["hook", "exchanged", "copied"])
def test_what_looks_at_the_branch_sees_a_plain_tensor(where, images, short_ways):
    network = gated("branch first")
    with torch.no_grad():
        before = network(images)
        short_ways.clear()
        block, seen = network[0], []
        if where == "hook":
            block.norm.register_forward_hook(lambda *given: seen.append(given[2]))
        elif where == "exchanged":
            block.norm = copy.deepcopy(block.norm)
        else:
            network = copy.deepcopy(network)
        assert torch.equal(network(images), before)
    assert all(type(each) is torch.Tensor for each in seen)
    assert len(short_ways) == (2 if where == "copied" else 1)


def test_a_child_that_is_called_alone_returns_a_plain_tensor(images):
    network = gated("branch first")
    assert type(network[0].norm(images)) is torch.Tensor
    assert not isinstance(network[0].norm(images), MarkedBranch)


@pytest.mark.parametrize("path", ["alone", "with another"])
def test_another_path_is_refused(images, path):
    network = gated("branch first")
    network[0].other_path = path
    with pytest.raises(SiteError) as error:
        network(images)
    assert str(error.value) == (
        "The forward of Adding added what its 'norm' returned 0 times, and once at insertion, so "
        "the gated addition cannot be told. Insert again with an example that takes this path "
        "(example=...), or choose other sites with where=."
    )
    network[0].other_path = ""
    network(images)


def test_remove_leaves_no_mark(images):
    network = gated("branch first")
    attnlab.remove(network)
    assert not any(module._forward_hooks for module in network.modules())
    network(images)


@pytest.mark.parametrize("where", ["norm", "block", "every module"])
def test_hooks_for_gradients(images, where):
    """With them torch hands on another tensor than what the module returned."""
    network = gated("branch first")
    expected = network(images)
    seen = []

    def hook(module, *_):
        seen.append(module)

    if where == "every module":
        handle = nn.modules.module.register_module_full_backward_hook(hook)
    else:
        module = network[0] if where == "block" else network[0].norm
        handle = module.register_full_backward_hook(hook)
    try:
        outputs = network(images.clone().requires_grad_())
        outputs.sum().backward()
    finally:
        handle.remove()
    assert torch.equal(outputs, expected)
    assert seen
    assert torch.equal(network(images), expected)


def test_a_marked_branch_adds_numbers_as_any_tensor_does():
    plain = torch.arange(3.0)
    marked = plain.as_subclass(MarkedBranch)
    marked.plain, marked.addition = plain, GatedAddition(None, [])
    for got, want in (
        (marked + 1, plain + 1),
        (2 + marked, 2 + plain),
        (marked + plain, 2 * plain),
    ):
        assert type(got) is torch.Tensor
        assert torch.equal(got, want)
