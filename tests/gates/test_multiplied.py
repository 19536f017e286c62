"""Strangers' modules that multiply by themselves, as gates: equal outputs, equal gradients."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable

import pytest
import torch
from timm.layers import (
    CecaModule,
    EcaModule,
    EffectiveSEModule,
    GatherExcite,
    GlobalContext,
    NonLocalAttn,
    SEModule,
)
from timm.layers.cbam import CbamModule, LightCbamModule
from timm.layers.coord_attn import CoordAttn, EfficientLocalAttn, SimpleCoordAttn, StripAttn
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torchvision.ops import SqueezeExcitation

import attnlab
from attnlab._errors import InputError, OptionError
from attnlab.gates import Multiplied
from attnlab.testing import gate_checks

Build = Callable[[int], nn.Module]


class Turned(nn.Module):
    """Gates the rows of a map that it turns, in two ways, and takes their mean."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.permute(0, 2, 1, 3).contiguous()
        rows = rows * torch.sigmoid(self.conv(x).mean(dim=2, keepdim=True)).transpose(1, 2)
        columns = x.transpose(1, 3) * torch.sigmoid(x.mean(dim=(1, 3)))[:, None, :, None]
        return 1 / 2 * (rows.permute(0, 2, 1, 3) + columns.transpose(1, 3))


class Grouped(nn.Module):
    """Gates groups of channels in the batch axis, and keeps a part of its input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels // 4))

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.size()
        groups = x.view(batch * 4, channels // 4, height, width)
        means = groups.flatten(2).mean(-1) * self.weight
        gated = groups * torch.tanh(means)[:, :, None, None] / (1 + means.abs().amax())
        return sum([x, -gated.reshape(batch, channels, height, width)]) - 0.25 * x


MODULES: dict[str, Build] = {
    "SEModule": SEModule,
    "EffectiveSEModule": EffectiveSEModule,
    "EcaModule": EcaModule,
    "CecaModule": CecaModule,
    "CbamModule": CbamModule,
    "LightCbamModule": LightCbamModule,
    "GlobalContext": GlobalContext,
    "GatherExcite": functools.partial(GatherExcite, extent=2, use_mlp=False),
    "CoordAttn": CoordAttn,
    "CoordAttn with skip": functools.partial(CoordAttn, has_skip=True),
    "SimpleCoordAttn": SimpleCoordAttn,
    "EfficientLocalAttn": EfficientLocalAttn,
    "StripAttn": StripAttn,
    "torchvision": lambda channels: SqueezeExcitation(channels, 4),
    "Turned": Turned,
    "Grouped": Grouped,
}


def trained(build: Build) -> nn.Module:
    torch.manual_seed(0)
    module = build(16).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.5)
    return module


def maps() -> Tensor:
    """With zeros, by which no one could divide."""
    x = torch.randn(3, 16, 6, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x[:, ::3] = F.relu(x[:, ::3])
    x[:, 5, 2:4] = 0
    return x


def gradients(call: Callable[[Tensor], Tensor], module: nn.Module) -> tuple[Tensor, ...]:
    x = maps().requires_grad_()
    output = call(x)
    weight = torch.linspace(-1, 2, output.numel(), dtype=torch.float64).view_as(output)
    return (output, *torch.autograd.grad((output * weight).sum(), [x, *module.parameters()]))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", MODULES)
def test_gate_times_map_is_what_the_module_returns(name: str, training: bool) -> None:
    module = trained(MODULES[name]).train(training)
    gate = Multiplied(copy.deepcopy(module)).train(training)
    got = gradients(lambda x: x * gate(x), gate.module)
    for mine, own in zip(got, gradients(module, module), strict=True):
        torch.testing.assert_close(mine, own, rtol=1e-12, atol=1e-13)
    for key, value in module.state_dict().items():  # of a norm, which counts its batches
        assert torch.equal(gate.state_dict()[f"module.{key}"], value)


@pytest.mark.parametrize("name", MODULES)
def test_compiled_and_exported_it_is_the_same(name: str) -> None:
    gate = Multiplied(trained(MODULES[name])).eval()
    x = maps()
    expected = gate(x)
    torch.compiler.reset()
    compiled = torch.compile(gate, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), expected, rtol=1e-12, atol=1e-13)
    program = torch.export.export(gate, (x,))
    torch.testing.assert_close(program.module()(x), expected, rtol=1e-12, atol=1e-13)


def test_it_has_to_run_once_before_it_is_compiled() -> None:
    gate = Multiplied(SEModule(16)).eval()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="has to run once before it is"):
        torch.compile(gate, fullgraph=True, backend="aot_eager")(torch.randn(2, 16, 4, 4))


def ran(build: Build, channels: int) -> nn.Module:
    gate = Multiplied(build(channels)).eval()
    gate(torch.randn(2, channels, 4, 4))
    return gate


@pytest.mark.parametrize("check", gate_checks(), ids=str)
@pytest.mark.parametrize("name", ["SEModule", "CoordAttn"])
def test_it_conforms_where_the_module_does(name: str, check: Callable[[Build], None]) -> None:
    check(functools.partial(ran, MODULES[name]))


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> object:
        return self.function(x)


def gate_of(x: Tensor) -> Tensor:
    return torch.sigmoid(x.mean(dim=(2, 3), keepdim=True))


PRODUCTS: dict[str, Callable[[Tensor], Tensor]] = {
    "gate on the left": lambda x: gate_of(x) * x,
    "a function": lambda x: torch.mul(gate_of(x), x),
    "a method": lambda x: x.mul(gate_of(x)),
    "a quotient": lambda x: x / (1 + gate_of(x)),
    "a difference": lambda x: 2 * x - x * gate_of(x),
    "a sign": lambda x: -(x * gate_of(x)),
    "a mask": lambda x: x * (x > 0),
    "swish": lambda x: x * torch.sigmoid(x),
    "a product from the right": lambda x: x * torch.sigmoid(x @ x.new_ones(8, 8).tril()),
    "a product from the left": lambda x: x * torch.sigmoid(x.new_ones(6, 6).tril() @ x),
    "a difference inside": lambda x: x * torch.sigmoid(1 - x[:, :1]),
    "a flat map": lambda x: (x.flatten(2) * x.flatten(2).mean(1, keepdim=True)).view_as(x),
    "two turns": lambda x: (
        x.transpose(1, 2).transpose(2, 3) * x.mean(dim=(2, 3))[:, None, None]
    ).permute(0, 3, 1, 2),
    "unchanged": lambda x: x,
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_that_are_followed(name: str) -> None:
    x = maps()
    expected = PRODUCTS[name](x)
    gate = Multiplied(Function(PRODUCTS[name]))
    torch.testing.assert_close(x * gate(x), expected, rtol=1e-13, atol=1e-14)
    torch.compiler.reset()
    compiled = torch.compile(gate, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(x * compiled(x), expected, rtol=1e-13, atol=1e-14)


def write_to_a_slice(x: Tensor) -> Tensor:
    product = x * gate_of(x)
    product[:, :1].zero_()
    return product


def write_to_the_factor(x: Tensor) -> Tensor:
    gate = gate_of(x)
    product = x * gate
    gate.mul_(2)
    return product


NOT_A_PRODUCT = "its output is not its input times something"
REARRANGED = "it returned its input with other axes or other pixels"
CHANGED = "it changes its input, or a product of it, in place instead of making a new tensor"

REFUSED: list[tuple[str, Callable[[Tensor], object], str]] = [
    ("a constant", lambda x: x * gate_of(x) + 1, NOT_A_PRODUCT),
    ("an addition to each pixel", lambda x: x + gate_of(x), NOT_A_PRODUCT),
    ("a function of the map", F.relu, NOT_A_PRODUCT),
    ("a square", lambda x: x * x * 2, NOT_A_PRODUCT),
    ("a weighed sum", lambda x: torch.add(x, x * 2, alpha=3), NOT_A_PRODUCT),
    ("a rounded quotient", lambda x: torch.div(x, 2, rounding_mode="floor"), NOT_A_PRODUCT),
    ("shifted channels", lambda x: x.roll(1, 1) * 2, NOT_A_PRODUCT),
    ("no gradient", lambda x: x.detach() * gate_of(x), NOT_A_PRODUCT),
    ("other bits", lambda x: x.view(torch.int64).view(torch.float64), NOT_A_PRODUCT),
    ("a turned map", lambda x: x.permute(0, 1, 3, 2).reshape(x.shape) * 2, REARRANGED),
    ("a shuffle", lambda x: x.view(3, 4, 4, 48).transpose(1, 2).reshape(x.shape), REARRANGED),
    ("a write", lambda x: x.mul_(2), CHANGED),
    ("a write by an operator", lambda x: x.__imul__(2), CHANGED),
    ("a write of a layer", lambda x: F.relu(x, inplace=True) * 2, CHANGED),
    ("a write to a slice", write_to_a_slice, CHANGED),
    ("a write to the factor", write_to_the_factor, CHANGED),
    ("two tensors", lambda x: (x, x), "it returned tuple, not a tensor"),
    ("another shape", lambda x: x[:, :1] * 2, "it returned a tensor of shape (3, 1, 6, 8)"),
]


@pytest.mark.parametrize(
    ("function", "what"), [(f, w) for _, f, w in REFUSED], ids=[name for name, _, _ in REFUSED]
)
def test_what_is_no_product_is_refused(function: Callable[[Tensor], object], what: str) -> None:
    with pytest.raises(InputError) as error, torch.no_grad():
        Multiplied(Function(function))(maps())
    assert str(error.value) == (
        f"Multiplied(Function) cannot read a gate: for a map of shape (3, 16, 6, 8), {what}. Only "
        "a module that returns its input times a gate has one; write other attention as a "
        "subclass of attnlab.gates.BranchGate that returns the gate."
    )


@pytest.mark.parametrize("build", [NonLocalAttn, functools.partial(GlobalContext, fuse_add=True)])
def test_attention_that_adds_is_refused(build: Build) -> None:
    with pytest.raises(InputError, match=NOT_A_PRODUCT):
        Multiplied(trained(build))(maps())


def test_what_is_not_a_module_is_refused() -> None:
    with pytest.raises(OptionError) as error:
        Multiplied(SEModule)
    assert str(error.value) == (
        "Expected Multiplied to get a module that returns its input times a gate, built for its "
        f"number of channels, but got {SEModule!r}. For insert, write lambda channels: "
        "Multiplied(Module(channels))."
    )


def test_ranks_are_asked_for() -> None:
    class Sequences(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * torch.sigmoid(x.mean(dim=2, keepdim=True))

    x = torch.randn(2, 3, 5)
    with pytest.raises(InputError) as error:
        Multiplied(Sequences())(x)
    assert str(error.value) == (
        "Multiplied(Sequences) takes maps of 2 spatial axes but got (2, 3, 5). If the module takes "
        "1, build it with ranks=(1,)."
    )
    torch.testing.assert_close(x * Multiplied(Sequences(), ranks=(1,))(x), Sequences()(x))


def test_an_error_of_the_module_is_its_own() -> None:
    def fails(_: Tensor) -> Tensor:
        raise KeyError("weights")

    with pytest.raises(KeyError, match="weights"):
        Multiplied(Function(fails))(maps())
    assert torch._C._len_torch_function_stack() == 0


def test_modes_around_it_see_the_gate_only_and_are_still_there_afterwards() -> None:
    class Counts(TorchFunctionMode):
        calls = 0

        def __torch_function__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            self.calls += 1
            return function(*args, **(kwargs or {}))

    gate, x = Multiplied(trained(CbamModule)), maps()
    expected = gate(x)
    with Counts() as mode:
        before = mode.calls
        got = gate(x)
        inside = mode.calls - before
        x + x
        assert mode.calls > before + inside
    assert inside <= 4  # what it asks of the map itself: its number of axes and the like
    assert torch.equal(got, expected)
    with torch._C.DisableTorchFunction():
        assert torch.equal(gate(x), expected)


@pytest.mark.parametrize("where", ["after a module", "at an addition"])
@pytest.mark.parametrize("start", ["paper", "identity"])
def test_inserted_it_does_what_the_module_would_do_there(where: str, start: str) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(16, 16, 3, padding=1)

        def branch(self, x: Tensor) -> Tensor:
            return self.conv(x) if where == "after a module" else torch.relu(self.conv(x))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.branch(x)

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.Sequential(Block(), Block())

        def forward(self, x: Tensor) -> Tensor:
            return self.blocks(x)

    torch.manual_seed(0)
    plain, x = Network().double().eval(), maps()
    network, receipt = attnlab.insert(
        plain,
        lambda channels: Multiplied(GlobalContext(channels)),
        start=start,  # type: ignore[arg-type]
        example=x,
    )
    gates = [module for module in network.modules() if isinstance(module, Multiplied)]
    assert len(gates) == len(receipt.sites) == 2
    if start == "identity":
        assert torch.equal(network(x), plain(x))
        network(x).sum().backward()
        assert all(gate.strength.value.grad.abs() > 0 for gate in gates)  # type: ignore[union-attr]
        assert receipt.parameters_added == 2 + sum(
            p.numel() for gate in gates for p in gate.module.parameters()
        )
        return
    state = x
    for block, gate in zip(plain.blocks, gates, strict=True):
        assert isinstance(block, Block)
        state = state + gate.module(block.branch(state))
    torch.testing.assert_close(network(x), state, rtol=1e-12, atol=1e-13)


def test_its_gates_are_seen_and_can_be_made_constant() -> None:
    torch.manual_seed(0)
    plain = attnlab.create("resnet20").eval()
    network, _ = attnlab.insert(plain, lambda channels: Multiplied(StripAttn(channels)))
    images = torch.randn(4, 3, 32, 32)
    assert len(attnlab.steps(network)) == len(attnlab.steps(plain)) == 9
    with attnlab.capture(network) as steps:
        network(images)
    assert len(steps) == 9
    copied = copy.deepcopy(network)
    assert torch.equal(copied(images), network(images))
    with pytest.raises(attnlab.AttnlabError, match="The gates of 9 of 9 sites cannot be folded"):
        attnlab.fold(network)


def test_identity_start_can_leave_the_identity() -> None:
    gate, x = Multiplied(trained(EcaModule)), maps()
    own = gate(x)
    assert gate.start_constant() == 1.0
    assert torch.equal(gate(x), torch.ones_like(own))
    nn.init.ones_(gate.strength.value)  # type: ignore[arg-type]
    torch.testing.assert_close(gate(x), own)
