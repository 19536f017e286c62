"""The conformance suite finds the mistakes it is there to find."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from attnlab._errors import OptionError
from attnlab.gates import BranchGate, ResidualLambdas, SqueezeExcitation
from attnlab.testing import ConformanceError, check_gate, gate_checks

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
