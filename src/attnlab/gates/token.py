"""A gate for each token: one value that the token itself decides.

`gate = factor · σ(w · x̂ + b)` with x̂ the state x_t of the token, divided by its root mean square
over channels. It looks at no other token, so it is causal, and a cache of keys and values does not
change it.

After the gated attention of Qiu et al. (NeurIPS 2025), which has such a gate in front of the output
projection: a value that all channels of a token share comes out the same after that projection if
it has no bias. Small language models read few channels (`read=12`) and start at 2σ(0) = 1. That the
state is normalised here, where their gates read a block's own norm, is ours.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab._errors import InputError, OptionError
from attnlab._types import Maps
from attnlab.gates._gate import ANY_RANK, StepGate

_SMALLEST = 1e-6
"""Added to the mean square, as in RMSNorm: a state of zeros stays one."""


def normalised_state(state: Maps) -> Maps:
    """The state of every token (pixel) divided by its root mean square over channels."""
    wide = state.to(torch.promote_types(state.dtype, torch.float32))
    return wide * torch.rsqrt(wide.square().mean(1, keepdim=True) + _SMALLEST)


class TokenGate(StepGate):
    """One value per token, between 0 and `factor`.

    Args:
        channels: of the branch.
        read: how many of the first channels it reads; all when None.
        factor: 2 lets it start at 1 and grow or fall; 1 is a plain σ, which starts at a half.
        spread: standard deviation of its first weights. At 0 all tokens start alike.
    """

    ranks = ANY_RANK

    def __init__(
        self,
        channels: int,
        read: int | None = None,
        factor: float = 2.0,
        spread: float = 0.0,
    ) -> None:
        super().__init__(channels)
        if read is not None and read < 1:
            raise OptionError(f"Expected read to be at least 1 channel but got {read}.")
        if not 0 < factor < float("inf"):
            raise OptionError(f"Expected factor to be a number above 0 but got {factor}.")
        if not 0 <= spread < float("inf"):
            raise OptionError(f"Expected spread to be at least 0 but got {spread}.")
        # A network has stages of other widths: where there are fewer channels, all are read.
        self.read = channels if read is None else min(read, channels)
        self.factor = factor
        self.weight = nn.Parameter(spread * torch.randn(self.read))
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, shortcut: Maps, branch: Maps) -> Float[Tensor, "batch 1 *space"]:
        self.check_input(branch)
        if shortcut.shape != branch.shape:
            raise InputError(
                f"TokenGate reads the state of each token, but the shortcut is "
                f"{tuple(shortcut.shape)} and the branch {tuple(branch.shape)}. Put it on blocks "
                f"with an identity shortcut."
            )
        seen = normalised_state(shortcut)[:, : self.read]
        value = torch.einsum("bc...,c->b...", seen, self.weight.to(seen.dtype))
        gate = self.factor * torch.sigmoid(value + self.bias.to(seen.dtype))
        return gate[:, None].to(branch.dtype)

    def start_constant(self) -> float:
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)
        return self.factor / 2

    def extra_repr(self) -> str:
        return f"{self.channels}, read={self.read}, factor={self.factor:g}"
