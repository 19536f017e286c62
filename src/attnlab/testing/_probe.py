"""One way to feed all forms of gates."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from attnlab._errors import OptionError
from attnlab.gates import BranchGate, StageGate, StepGate

Build = Callable[[int], nn.Module]

CHANNELS = (1, 3, 17, 58)
MAPS = ((8, 8), (5, 7), (1, 9), (1, 1))


def features(channels: int, size: tuple[int, ...] = (5, 7), batch: int = 8) -> Tensor:
    """Deterministic float64 maps whose channel means differ between inputs and in sign."""
    random = torch.Generator().manual_seed(batch * 1000 + channels * 10 + size[0])
    ones = (1,) * len(size)
    offset = torch.randn(batch, channels, *ones, generator=random, dtype=torch.float64)
    noise = torch.randn(batch, channels, *size, generator=random, dtype=torch.float64)
    return 2 * offset + noise


def build_seeded(build: Build, channels: int) -> nn.Module:
    """The gate as it starts, in float64."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(channels)
        return build(channels).to(torch.float64)


def build_awake(build: Build, channels: int) -> nn.Module:
    """The gate as if trained: no parameter at its start, no hidden unit that is always off."""
    module = build_seeded(build, channels)
    random = torch.Generator().manual_seed(channels)
    with torch.no_grad():
        for parameter in module.parameters():
            size = (1 / max(1, parameter[0].numel())) ** 0.5 if parameter.dim() > 1 else 0.5
            values = torch.rand(parameter.shape, generator=random, dtype=torch.float64)
            parameter.copy_(size * (0.5 + values))
    return module


def is_norm(module: nn.Module) -> bool:
    """Return whether the module takes the place of a norm instead of gating a branch."""
    return isinstance(module, _BatchNorm)


class GateProbe(nn.Module):
    """Any form of gate as a function of one map: its gate, or the output of a norm.

    A step gate gets the map turned around as its shortcut. A stage gate gets two blocks, and the
    second one's gate is returned, which depends on the memory of the first.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        if not isinstance(module, (BranchGate, StepGate, StageGate)) and not is_norm(module):
            raise OptionError(
                "Expected a BranchGate, StepGate, StageGate or a BatchNorm but got "
                f"{type(module).__name__}. Derive your gate from one of these classes."
            )
        self.module = module

    def forward(self, branch: Tensor) -> Tensor:
        turned = branch.flip(0, 3) if branch.dim() == 4 else branch.flip(0)
        if isinstance(self.module, StepGate):
            return self.module(turned, branch)
        if isinstance(self.module, StageGate):
            _, memory = self.module(turned, None)
            gate, _ = self.module(branch, memory)
            return gate
        return self.module(branch)
