"""`deep_copy` against `copy.deepcopy`."""

from __future__ import annotations

import copy
import gc

import pytest
import torch
from torch import nn

import attnlab
from attnlab.residuals.copying import deep_copy, double_deep_copy, double_on_cpu

IMAGES = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))


class Odd(nn.Module):
    """One of everything that a module can hold."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.twice = self.conv
        self.norm = nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 4, 1))
        whole = torch.arange(8.0)
        self.register_buffer("first", whole[:4])
        self.register_buffer("rest", whole[4:])
        self.register_buffer("unsaved", torch.ones(2), persistent=False)
        self.register_buffer("missing", None)
        self.tied = self.conv.bias
        self.inside = [nn.Linear(2, 2), {"head": self.conv}]
        self.drop = nn.Dropout(0.5)
        self.several = {"a": (1, [2.0])}
        self.conv.register_forward_hook(Named(self.norm))
        self.eval()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        seen = self.norm(self.twice(images)) * self.first.view(1, 4, 1, 1)
        return self.drop(seen).flatten(1)


class Named:
    """A hook that knows another module."""

    def __init__(self, other: nn.Module) -> None:
        self.other = other

    def __call__(self, _module, _arguments, output):
        return output + self.other.bias.view(1, -1, 1, 1)


def gated() -> nn.Module:
    plain = attnlab.create("resnet20").eval()
    return attnlab.insert(attnlab.insert(plain, "step", example=IMAGES)[0], "dia")[0]


BUILDS = {
    "odd": Odd,
    "gated": gated,
    "transformer": lambda: nn.TransformerEncoderLayer(8, 2, 8, batch_first=True).eval(),
    "graph": lambda: torch.fx.symbolic_trace(nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU())).eval(),
    "lazy": lambda: nn.Sequential(nn.LazyConv2d(4, 1)),
}
"""A graph of torch.fx and lazy layers say themselves how they are copied."""


@pytest.mark.parametrize("name", BUILDS)
def test_it_is_what_deepcopy_makes(name):
    torch.manual_seed(0)
    network = BUILDS[name]()
    ours, theirs = deep_copy(network), copy.deepcopy(network)
    assert [n for n, _ in ours.named_modules()] == [n for n, _ in theirs.named_modules()]
    for (path, mine), (_, other) in zip(ours.named_modules(), theirs.named_modules(), strict=True):
        assert type(mine).__qualname__ == type(other).__qualname__, path
        assert mine.__dict__.keys() == other.__dict__.keys(), path
        assert mine.training is other.training
        assert mine is not network.get_submodule(path)
    if name == "lazy":
        return
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    for key, tensor in ours.state_dict(keep_vars=True).items():
        original = network.state_dict(keep_vars=True)[key]
        assert torch.equal(tensor, original)
        assert tensor.data_ptr() != original.data_ptr()
        assert type(tensor) is type(original)
        assert tensor.requires_grad is original.requires_grad
    given = torch.randn(2, 5, 8) if name == "transformer" else IMAGES
    with torch.no_grad():
        before = network(given)
        assert torch.equal(ours(given), before)
        for parameter in network.parameters():
            parameter.add_(1)
        assert torch.equal(ours(given), before)


def test_what_is_shared_stays_shared_and_nothing_with_the_original():
    network = Odd()
    made = deep_copy(network)
    assert made.twice is made.conv
    assert made.tied is made.conv.bias
    assert made.inside[1]["head"] is made.conv
    assert made.inside[0] is not network.inside[0]
    assert made.several == network.several
    assert made.several["a"][1] is not network.several["a"][1]
    (hook,) = made.conv._forward_hooks.values()
    assert hook.other is made.norm
    assert made.first.untyped_storage().data_ptr() == made.rest.untyped_storage().data_ptr()
    made.conv.register_forward_pre_hook(lambda *_: None)
    assert not network.conv._forward_pre_hooks
    made.register_buffer("another", torch.ones(1), persistent=False)
    assert "another" not in network._non_persistent_buffers_set


def test_what_the_memo_has_is_taken():
    network, shared = Odd(), [1, 2]
    network.shared = shared
    other = nn.Parameter(torch.zeros(4))
    made = deep_copy(network, {id(shared): shared, id(network.conv.bias): other})
    assert made.shared is shared
    assert made.conv.bias is made.tied is other


def test_buffers_of_one_memory_stay_so_and_others_are_copied_whole():
    network = nn.Module()
    counts = torch.arange(6.0)
    network.register_buffer("counts", counts)
    network.register_buffer("table", counts.view(2, 3))
    network.register_buffer("turned", counts.view(2, 3).t())
    network.register_buffer("number", torch.tensor(3))
    network.register_buffer("tagged", torch.ones(2))
    network.tagged.note = "kept"
    ours, theirs = deep_copy(network), copy.deepcopy(network)
    for made in (ours, theirs):
        made.counts[1] = 7.0
        assert made.table[0, 1] == made.turned[1, 0] == 7.0
        assert made.turned.stride() == network.turned.stride()
        assert made.number == 3
        assert made.tagged.note == "kept"
    assert counts.tolist() == [0, 1, 2, 3, 4, 5]


class Fails:
    def __deepcopy__(self, memo: object) -> object:
        raise RuntimeError("no copy of this")


@pytest.mark.parametrize("enabled", [True, False])
def test_nothing_is_collected_while_copying(enabled: bool) -> None:
    network = nn.Sequential(*(nn.Conv2d(1, 1, 1) for _ in range(300)))
    phases: list[str] = []

    def note(phase: str, _: object) -> None:
        phases.append(phase)

    gc.collect()
    (gc.enable if enabled else gc.disable)()
    gc.callbacks.append(note)
    try:
        deep_copy(network[0])  # what it allocates for itself is no copy
        del phases[:]
        deep_copy(network)
        seen = list(phases)
        assert gc.isenabled() is enabled
        network.odd = Fails()
        with pytest.raises(RuntimeError):
            deep_copy(network)
        assert gc.isenabled() is enabled
    finally:
        gc.callbacks.remove(note)
        gc.enable()
    assert len(seen) <= 4  # one that was due before, or after


class Holds(nn.Module):
    """Holds an object under two names, and in a list."""

    def __init__(self, value: object) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.one, self.other, self.several = value, value, [value, (value, 1)]


class Plain:
    """Attributes alone."""

    def __init__(self) -> None:
        self.numbers, self.me = [1, 2], self


class Slotted:
    __slots__ = ("numbers",)

    def __init__(self) -> None:
        self.numbers = [1, 2]


class Counts(list):
    """A list with an attribute."""

    def __init__(self) -> None:
        super().__init__([1, 2])
        self.numbers = [3]


class Stateful(Plain):
    """Says what of it is kept."""

    def __getstate__(self) -> dict[str, object]:
        return {"numbers": self.numbers, "kept": True}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, restored=True)


class Keyed(dict):
    def __init__(self) -> None:
        super().__init__(numbers=[1, 2])


VALUES = {
    "plain": Plain,
    "slots": Slotted,
    "a list": Counts,
    "its own state": Stateful,
    "a dictionary": Keyed,
    "a set": lambda: {1, 2},
    "a tuple": lambda: (1, [2, 3]),
    "numbers": lambda: (1, 2.0, "three"),
    "a key that is copied": lambda: {Plain(): [1]},
    "a view": lambda: torch.arange(6.0).view(2, 3).t(),
    "a leaf": lambda: torch.ones(2, requires_grad=True),
    "whole numbers": lambda: torch.arange(3),
    "a sparse tensor": lambda: torch.eye(2).to_sparse(),
}


@pytest.mark.parametrize("name", VALUES)
def test_whatever_a_module_holds(name: str) -> None:
    network = Holds(VALUES[name]())
    ours, theirs = deep_copy(network), copy.deepcopy(network)
    for made in (ours, theirs):
        assert made.one is made.other is made.several[0] is made.several[1][0]
        assert type(made.one) is type(network.one)
        assert (made.one is network.one) is (name == "numbers")
        assert made.layer is not network.layer
    if isinstance(network.one, torch.Tensor):
        assert torch.equal(ours.one.to_dense(), network.one.to_dense())
        assert ours.one.layout == network.one.layout
        assert ours.one.requires_grad == network.one.requires_grad
        if not network.one.is_sparse:
            assert ours.one.stride() == theirs.one.stride()
            assert ours.one.data_ptr() != network.one.data_ptr()
    elif hasattr(network.one, "numbers"):
        assert ours.one.numbers == network.one.numbers
        assert ours.one.numbers is not network.one.numbers
        assert vars(theirs.one).keys() == vars(ours.one).keys() if name != "slots" else True
        assert getattr(ours.one, "me", ours.one) is ours.one
    elif name == "a key that is copied":
        ((key, value),) = ours.one.items()
        assert key not in network.one
        assert value == [1]
    else:
        assert ours.one == network.one


class Half(nn.Module):
    """Parameters and buffers of several types; two of them share."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3).half()
        self.again, self.frozen = self.layer, nn.Linear(3, 3).double()
        self.frozen.weight.requires_grad_(False)
        self.register_buffer("table", torch.rand(3, dtype=torch.bfloat16))
        self.register_buffer("steps", torch.arange(3))
        self.register_buffer("nothing", None)
        memory = torch.arange(6.0)
        self.register_buffer("first", memory[:3])
        self.register_buffer("rest", memory[3:])


@pytest.mark.parametrize("function", [double_deep_copy, double_on_cpu])
def test_a_copy_in_double(function) -> None:
    network = Half()
    ours, theirs = function(network), copy.deepcopy(network).double()
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    for name, value in theirs.state_dict(keep_vars=True).items():
        found = ours.state_dict(keep_vars=True)[name]
        assert type(found) is type(value), name
        assert found.dtype == value.dtype == (torch.int64 if name == "steps" else torch.float64)
        assert torch.equal(found, value)
        assert found.requires_grad is value.requires_grad
        assert found.data_ptr() != network.state_dict()[name].data_ptr()
    assert ours.again is ours.layer
    assert network.layer.weight.dtype == torch.float16


def test_what_the_memo_has_is_taken_in_double_too() -> None:
    network, other = Half(), nn.Parameter(torch.zeros(3))
    made = double_deep_copy(network, {id(network.layer.bias): other})
    assert made.layer.bias.dtype == torch.float64  # cast, as all of the copy
    assert torch.equal(made.layer.bias, torch.zeros(3).double())


def test_a_network_elsewhere_in_double_is_on_the_cpu() -> None:
    with torch.device("meta"):
        network = nn.Linear(2, 2)
    with pytest.raises(NotImplementedError, match="meta"):  # it has no values to take along
        double_on_cpu(network)
