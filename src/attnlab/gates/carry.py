"""A learned number on the state and one on the branch: `x_{t+1} = λ x_t + μ f(x_t)`.

The language models of modded-nanogpt learn such numbers for each block (`resid_lambdas`), from 1. A
λ below 1 forgets earlier steps. Because a later step undoes λ with a larger μ where each branch
begins with a norm, λ there is a matter of how the network learns, not of what it can compute.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab._errors import InputError, OptionError
from attnlab._types import Maps
from attnlab.gates._gate import ANY_RANK, CarryGate


class ResidualLambdas(CarryGate):
    """Two learned numbers per step, λ for the state and μ for the branch.

    Args:
        channels: of the branch.
        state: λ at first.
        branch: μ at first. At 1 and 1 the network starts as it is without them.
    """

    ranks = ANY_RANK

    def __init__(self, channels: int, state: float = 1.0, branch: float = 1.0) -> None:
        super().__init__(channels)
        for name, value in (("state", state), ("branch", branch)):
            if not math.isfinite(value):
                raise OptionError(f"Expected {name} to be a finite number but got {value}.")
        self.state = nn.Parameter(torch.full((1,), float(state)))
        self.branch = nn.Parameter(torch.full((1,), float(branch)))

    def forward(self, shortcut: Maps, branch: Maps) -> Float[Tensor, "1 channels *ones"]:
        self.check_input(branch)
        if shortcut.shape != branch.shape:
            raise InputError(
                f"ResidualLambdas scales the state, but the shortcut is {tuple(shortcut.shape)} "
                f"and the branch {tuple(branch.shape)}. Put it on blocks with an identity shortcut."
            )
        ones = (1,) * (branch.dim() - 2)
        return self.branch.to(branch.dtype).expand(self.channels).view(1, -1, *ones)

    def carry(self) -> Float[Tensor, " channels"]:
        return self.state.expand(self.channels)

    def start_constant(self) -> float:
        nn.init.ones_(self.state)
        nn.init.ones_(self.branch)
        return 1.0
