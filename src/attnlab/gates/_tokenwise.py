"""What gates for tokens share: `gate = factor · σ(W x̂ + b)`, from the token's own state alone.

x̂ is the state x_t of the token, divided by its root mean square over channels. In front of the
output projection of attention it is what the attention was given, divided so, which after a norm
without shift is the same up to the norm's weights. A gate of this kind looks at no other token, so
it is causal, and a cache of keys and values does not change it.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab._errors import InputError, OptionError
from attnlab._types import Maps
from attnlab.gates._gate import ANY_RANK, StepGate
from attnlab.gates._shared import ordered_like

_SMALLEST = 1e-6
"""Added to the mean square, as in RMSNorm: a state of zeros stays one."""


def normalised_state(state: Maps) -> Maps:
    """The state of every token (pixel) divided by its root mean square over channels."""
    wide = state.to(torch.promote_types(state.dtype, torch.float32))
    return wide * torch.rsqrt(wide.square().mean(1, keepdim=True) + _SMALLEST)


def token_values(
    state: Maps, weight: Float[Tensor, "values read"], bias: Float[Tensor, " values"], factor: float
) -> Float[Tensor, "batch values *space"]:
    """`factor · σ(W x̂ + b)` of every token, where W reads the first channels of the state."""
    seen = normalised_state(state)[:, : weight.shape[1]]
    logits = torch.einsum("bc...,vc->bv...", seen, weight.to(seen.dtype))
    return factor * torch.sigmoid(logits + bias.to(seen.dtype).view(-1, *(1,) * (state.dim() - 2)))


class TokenwiseGate(StepGate):
    """A gate of `values` numbers per token, each between 0 and `factor`.

    Args:
        channels: of the branch.
        values: how many numbers a token gets; each is for as many channels in a row.
        read: how many of the first channels it reads; all when None.
        factor: 2 lets it start at 1 and grow or fall; 1 is a plain σ, which starts at a half.
        spread: standard deviation of its first weights. At 0 all tokens start alike.
        state_channels: of the state, where it has others than the branch; as many when None.
    """

    ranks = ANY_RANK

    def __init__(
        self,
        channels: int,
        values: int,
        read: int | None,
        factor: float,
        spread: float,
        state_channels: int | None = None,
    ) -> None:
        super().__init__(channels)
        if state_channels is not None and state_channels < 1:
            raise OptionError(f"Expected state_channels to be at least 1 but got {state_channels}.")
        self.state_channels = channels if state_channels is None else state_channels
        if read is not None and read < 1:
            raise OptionError(f"Expected read to be at least 1 channel but got {read}.")
        if not 0 < factor < float("inf"):
            raise OptionError(f"Expected factor to be a number above 0 but got {factor}.")
        if not 0 <= spread < float("inf"):
            raise OptionError(f"Expected spread to be at least 0 but got {spread}.")
        # A network has stages of other widths: if there are fewer channels, all are read.
        self.read = self.state_channels if read is None else min(read, self.state_channels)
        self.factor = factor
        self.weight = nn.Parameter(spread * torch.randn(values, self.read))
        self.bias = nn.Parameter(torch.zeros(values))

    def forward(self, shortcut: Maps, branch: Maps) -> Float[Tensor, "batch gated *space"]:
        self.check_input(branch)
        if shortcut.shape != (len(branch), self.state_channels, *branch.shape[2:]):
            raise InputError(
                f"{type(self).__name__} reads the state of each token, {self.state_channels} "
                f"channels, but the shortcut is {tuple(shortcut.shape)} and the branch "
                f"{tuple(branch.shape)}. Put it on blocks with an identity shortcut."
            )
        weight = self.weight.view(-1, self.read)
        gate = token_values(shortcut, weight, self.bias, self.factor).to(branch.dtype)
        values = gate.shape[1]
        if values == 1:
            return gate
        if values < self.channels:
            gate = gate.repeat_interleave(self.channels // values, dim=1)
        return ordered_like(gate, branch)

    def start_constant(self) -> float:
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)
        return self.factor / 2

    def extra_repr(self) -> str:
        return f"{self.channels}, read={self.read}, factor={self.factor:g}"
