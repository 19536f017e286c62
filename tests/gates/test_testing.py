"""The conformance suite finds the mistakes it is there to find."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import attnlab
from attnlab._errors import OptionError
from attnlab.gates import (
    BranchGate,
    DenseImplicitAttention,
    InstanceEnhancementBatchNorm,
    ResidualLambdas,
    SqueezeExcitation,
    StepAdaptor,
)
from attnlab.surgery.insertion import attachments
from attnlab.testing import ConformanceError, Tool, check_gate, check_tool, gate_checks
from attnlab.testing._law import SmallNetwork, survives
from attnlab.testing._probe import GateProbe, build_awake, features

CHECKS = {str(check): check for check in gate_checks()}


class Scalar(BranchGate):
    """A right gate of one parameter per channel, to be broken in one place at a time."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.weight = nn.Parameter(torch.zeros(channels))

    def forward(self, branch: Tensor) -> Tensor:
        self.check_input(branch)
        z = branch.mean(dim=(2, 3)) * self.weight
        return torch.sigmoid(z).to(branch.dtype)[:, :, None, None]

    def start_constant(self) -> float:
        nn.init.zeros_(self.weight)
        return 0.5


class Multiplies(Scalar):
    def forward(self, branch: Tensor) -> Tensor:
        return branch * super().forward(branch)


class Constant(Scalar):
    def forward(self, branch: Tensor) -> Tensor:
        return super().forward(torch.zeros_like(branch))


class WrongConstant(Scalar):
    def start_constant(self) -> float:
        super().start_constant()
        return 0.6


class StartsWithAnotherState(ResidualLambdas):
    def start_constant(self) -> float:
        super().start_constant()
        nn.init.constant_(self.state, 0.9)
        return 1.0


class ForgetsChannelsLast(Scalar):
    def forward(self, branch: Tensor) -> Tensor:
        return super().forward(branch).expand_as(branch).contiguous()


class Broadcasts(Scalar):
    def check_input(self, features: Tensor) -> None:
        pass


class PromotesToFloat(Scalar):
    def forward(self, branch: Tensor) -> Tensor:
        return (
            super().forward(branch.float())
            if branch.dtype == torch.bfloat16
            else super().forward(branch)
        )


class IdleParameter(Scalar):
    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.idle = nn.Parameter(torch.zeros(channels))


class LosesStatistics(Scalar):
    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.offset: Tensor
        self.register_buffer("offset", torch.rand(channels), persistent=False)

    def forward(self, branch: Tensor) -> Tensor:
        return super().forward(branch) + self.offset[:, None, None]


class BreaksTheGraph(Scalar):
    def forward(self, branch: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        return super().forward(branch)


class InPlace(Scalar):
    def forward(self, branch: Tensor) -> Tensor:
        with torch.no_grad():
            branch.mul_(1.5)
        return super().forward(branch)


class WrongGradient(Scalar):
    def forward(self, branch: Tensor) -> Tensor:
        gate = super().forward(branch)
        return gate + (gate - gate.detach())


class PoisonsFlatBranch(Scalar):
    def forward(self, branch: Tensor) -> Tensor:
        gate = super().forward(branch)
        return gate + branch.square().sum(dim=(2, 3), keepdim=True).sqrt() * 0


class LooksAtTheArrangement(Scalar):
    ranks = (1, 2, 3)

    def forward(self, branch: Tensor) -> Tensor:
        self.check_input(branch)
        top = branch.select(2, 0).flatten(2).mean(dim=2) * self.weight
        return torch.sigmoid(top).reshape(top.shape + (1,) * (branch.dim() - 2))


class ForgetsItsRank(Scalar):
    ranks = (1, 2, 3)

    def forward(self, branch: Tensor) -> Tensor:
        self.check_input(branch)
        z = branch.flatten(2).mean(dim=2) * self.weight
        return torch.sigmoid(z)[:, :, None, None]


class TakesAnyShape(Scalar):
    def forward(self, branch: Tensor) -> Tensor:
        z = branch.flatten(2).mean(dim=2).mean(dim=1, keepdim=True) * self.weight
        return torch.sigmoid(z)[:, :, None, None]


class FailsInsideOnSequences(Scalar):
    def check_input(self, features: Tensor) -> None:
        pass

    def forward(self, branch: Tensor) -> Tensor:
        return torch.sigmoid(branch.mean(dim=(2, 3), keepdim=True) * self.weight[:, None, None])


def test_right_gate_passes_all_checks() -> None:
    check_gate(Scalar)


@pytest.mark.parametrize(
    ("gate", "check", "message"),
    [
        (Multiplies, "never_multiplies", "the result is 0 exactly where the branch is"),
        (Constant, "depends_on_input", "1 channels: 1 are constant"),
        (
            StartsWithAnotherState,
            "starts_constant",
            "1 channels, training=True: the state is not carried on as it is",
        ),
        (WrongConstant, "starts_constant", "1 channels, training=True: off by 1.0e-01"),
        (ForgetsChannelsLast, "keeps_channels_last", "the product has another order"),
        (Broadcasts, "wrong_channels_are_refused", "built for 1 channels, took 17"),
        (PromotesToFloat, "autocast", "a torch.bfloat16 branch became torch.float32"),
        (IdleParameter, "gradient_reaches_every_parameter", "1 channels: idle gets no gradient"),
        (LosesStatistics, "meta_device", "the materialised gate differs"),
        (InPlace, "leaves_input_alone", "the input was changed"),
        (WrongGradient, "gradient_is_right", "channels_last=False"),
        (LooksAtTheArrangement, "takes_volumes", "from the same pixels in one column"),
        (ForgetsItsRank, "takes_sequences", "(8, 17, 9) got a gate of (8, 17, 1, 1)"),
        (TakesAnyShape, "takes_tokens", "took a map of shape (8, 9, 17) without an error"),
        (FailsInsideOnSequences, "takes_sequences", "refused by check_input but ended in IndexErr"),
        (PoisonsFlatBranch, "flat_branch_has_finite_gradient", "gradient of the input is not fin"),
    ],
)
def test_wrong_gate_is_found(gate: type[BranchGate], check: str, message: str) -> None:
    with pytest.raises(ConformanceError) as error:
        CHECKS[check](gate)
    assert str(error.value).startswith(f"{check}: ")
    assert message in str(error.value)


def test_graph_break_is_found() -> None:
    with pytest.raises(Exception, match="graph_break"):
        CHECKS["compiles"](BreaksTheGraph)


def test_other_modules_are_refused() -> None:
    with pytest.raises(OptionError) as error:
        check_gate(lambda channels: nn.Conv2d(channels, channels, 1))
    assert str(error.value) == (
        "Expected a BranchGate, StepGate, StageGate or a BatchNorm but got Conv2d. Derive your "
        "gate from one of these classes."
    )


def test_inductor_compiles_a_gate_in_one_graph() -> None:
    from torch._inductor import cpp_builder

    try:
        cpp_builder.get_cpp_compiler()
    except Exception as error:
        pytest.skip(f"no C++ compiler: {error}")
    gate = SqueezeExcitation(16)
    branch = torch.randn(2, 16, 5, 5)
    compiled = torch.compile(gate, fullgraph=True)
    torch.testing.assert_close(compiled(branch), gate(branch))


def after(change: object, tolerance: float = 1e-4) -> Tool:
    """A tool by what it does to the output."""
    return Tool("tool", lambda network, _: lambda x: change(network(x)), tolerance)


def test_the_law_of_tools_allows_as_much_as_the_tool_is_off() -> None:
    assert check_tool(after(lambda y: y), "se") == "equal"
    assert check_tool(after(lambda y: y + 0.009 * y.abs().max(), 0.01), "se") == "equal"
    with pytest.raises(AssertionError, match=r"off by 1.1e-02 .*, allowed is 1e-02"):
        check_tool(after(lambda y: y + 0.011 * y.abs().max(), 0.01), "se")
    with pytest.raises(AssertionError, match="off by nan"):
        check_tool(after(lambda y: y * float("nan")), "se")


def test_the_law_of_tools_says_what_is_wrong() -> None:
    lose = Tool("lose", lambda network, _: (attnlab.remove(network), network)[1])
    plain = r"\(from that of the plain network by 0.0e\+00\), allowed is 1e-04"
    with pytest.raises(AssertionError, match=rf"after lose the output is off by .* {plain}"):
        check_tool(lose, "se")
    with pytest.raises(AssertionError, match=r"too little to see whether tool keeps them"):
        check_tool(after(lambda y: y, 1e3), "se")

    def refuse(*_: object) -> nn.Module:
        raise OptionError("no")

    def fail(*_: object) -> nn.Module:
        raise ValueError("broken")

    def fail_with_gates(network: nn.Module, images: Tensor) -> nn.Module:
        return fail(network, images) if dict(attachments(network)) else network

    assert check_tool(Tool("tool", refuse), "se") == "refused"
    for use, also in ((fail, "as on the plain one"), (fail_with_gates, "and not on the plain one")):
        message = f"tool fails on the network with gates, {also}: broken"
        with pytest.raises(AssertionError, match=message):
            check_tool(Tool("tool", use), "se")
        with pytest.raises(AssertionError, match=message):
            survives([Tool("tool", use)])(SqueezeExcitation)
    survives([Tool("tool", fail)])(InstanceEnhancementBatchNorm)  # put in by its name only


def test_the_law_of_tools_asks_for_gates_that_act() -> None:
    """Three times what the tool may be off, or nobody could tell that they are lost."""

    class Weak(Scalar):
        def forward(self, branch: Tensor) -> Tensor:
            return 1 + 1e-6 * super().forward(branch)

    with pytest.raises(AssertionError, match=r"^the gates change the output by \d.\de-0[678]"):
        check_tool(after(lambda y: y), Weak)
    assert check_tool(after(lambda y: y, 1e-9), Weak) == "equal"


def test_the_law_of_tools_takes_a_network_with_its_images() -> None:
    """Which it leaves as it was; a tool gets the images, and the gates' options go to insert."""
    network = attnlab.create("resnet20").train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    images, seen = torch.randn(1, 3, 16, 16), []

    def note(gated: nn.Module, given: Tensor) -> nn.Module:
        seen.append((torch.equal(given, images), gated.training, len(dict(attachments(gated)))))
        return gated

    assert check_tool(Tool("note", note), "se", network, images, where="stages:1") == "equal"
    assert seen == [(True, False, 3)]
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert not dict(attachments(network))


def test_a_probe_feeds_every_form_of_gate() -> None:
    """A step gate gets the map turned around as its shortcut, a stage gate as the block before."""
    branch, tokens = features(17), features(17, (9,))
    turned = torch.flip(branch, (0, 3))
    assert not torch.equal(branch, turned)
    se = build_awake(SqueezeExcitation, 17)
    assert torch.equal(GateProbe(se)(branch), se(branch))
    step = build_awake(StepAdaptor, 17)
    assert torch.equal(GateProbe(step)(branch), step(turned, branch))
    stage = build_awake(DenseImplicitAttention, 17)
    _, memory = stage(turned, None)
    assert torch.equal(GateProbe(stage)(branch), stage(branch, memory)[0])
    seen = []
    probe = GateProbe(step)
    probe.module.forward = lambda *given: seen.extend(given) or given[0]
    probe(tokens)
    assert torch.equal(seen[0], tokens.flip(0))
    assert torch.equal(seen[1], tokens)


def test_a_gate_that_is_awake_is_as_if_trained() -> None:
    """The same each time, float64, every parameter of one sign and of the size of its layer."""
    one, other = (build_awake(SqueezeExcitation, 58) for _ in range(2))
    for parameter, same in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(parameter, same)
        size = parameter[0].numel() ** -0.5 if parameter.dim() > 1 else 0.5
        assert parameter.dtype == torch.float64
        assert 0.5 * size <= parameter.min() < parameter.max() <= 1.5 * size


def test_a_layer_of_one_input_is_awake_too() -> None:
    weight, bias = build_awake(lambda channels: nn.Linear(1, channels), 58).parameters()
    assert 0.5 <= weight.min() < 0.6 < 1.4 < weight.max() <= 1.5
    assert 0.25 <= bias.min() < 0.3 < 0.7 < bias.max() <= 0.75


def test_maps_of_a_probe_differ_between_inputs_and_in_sign() -> None:
    maps = features(58)
    assert (maps.shape, maps.dtype) == ((8, 58, 5, 7), torch.float64)
    assert torch.equal(maps, features(58))
    means = maps.mean((2, 3))
    # Means are 2 N(0, 1) with the error of 35 values; pixels vary by 1 around them.
    assert means.std() == pytest.approx(2, rel=0.1)
    assert (maps - means[:, :, None, None]).std() == pytest.approx(1, rel=0.1)
    assert features(3, (4,), batch=2).shape == (2, 3, 4)


def test_the_small_network_is_as_if_trained() -> None:
    """Weights of both signs up to one over the root of what they sum; the rest around 1."""
    network = SmallNetwork()
    assert not network.training
    for name, tensor in network.state_dict().items():
        if tensor.ndim > 1:
            bound = tensor[0].numel() ** -0.5
            assert tensor.min() < -0.8 * bound < 0.8 * bound < tensor.max(), name
            assert tensor.abs().max() <= bound
        elif tensor.is_floating_point():
            assert 0.5 <= tensor.min() < tensor.max() <= 1.5, name
    images = torch.randn(2, 3, 12, 12)
    assert network(images).shape == (2, 10)
    assert len(attnlab.steps(network, images)) == 3
    assert torch.equal(network(images), SmallNetwork()(images))
