"""A gate for each token and head, which is a run of channels: `heads` values for each token.

After the headwise gated attention of Qiu et al. (NeurIPS 2025). Their gate has no bias, a factor of
1, and reads what the block's norm makes of the state. With an RMSNorm of weights g, which makes
`g ⊙ x̂`, their `σ(V (g ⊙ x̂))` is this formula with W = V diag(g) and b = 0. They multiply what the
heads found, before the output projection, and so does `attnlab.insert` in a network with attention
(`place="heads"`). At the end of the branch (`place="branch"`), after that projection, a run of
channels is a mixture of all heads.
"""

from __future__ import annotations

from attnlab._errors import OptionError
from attnlab.gates._shared import group_count
from attnlab.gates._tokenwise import TokenwiseGate

_HEADS = 4
"""The most heads when nobody said how many: those of our small decoder."""


class HeadGate(TokenwiseGate):
    """One value per token and head, between 0 and `factor`.

    Args:
        channels: of the branch.
        heads: runs of channels with a value each; when None, those of the attention, or at the end
            of a branch the largest divisor of the channels that is at most 4.
        read: how many of the first channels it reads; all when None.
        factor: 2 lets it start at 1 and grow or fall; 1 is a plain σ, as in the paper.
        spread: standard deviation of its first weights. At 0 all tokens start alike.
        state_channels: of the state that it reads, where it has others than the branch.
    """

    at_heads = True

    def __init__(
        self,
        channels: int,
        heads: int | None = None,
        read: int | None = None,
        factor: float = 2.0,
        spread: float = 0.0,
        state_channels: int | None = None,
    ) -> None:
        if heads is None:
            heads = group_count(channels, _HEADS)
        elif heads < 1 or channels % heads:
            raise OptionError(
                f"Expected heads to divide the {channels} channels but got {heads}. The nearest "
                f"that does is {group_count(channels, max(heads, 1))}."
            )
        super().__init__(channels, heads, read, factor, spread, state_channels)
        self.heads = heads

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, heads={self.heads}"
