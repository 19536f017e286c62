"""A gate for each token: one value that the token itself decides.

After the gated attention of Qiu et al. (NeurIPS 2025), which has such a gate in front of the output
projection: a value that all channels of a token share comes out the same after that projection if
it has no bias. Small language models read few channels (`read=12`) and start at 2σ(0) = 1. That the
state is normalised here, where their gates read a block's own norm, is ours.
"""

from __future__ import annotations

from torch import nn

from attnlab.gates._tokenwise import TokenwiseGate


class TokenGate(TokenwiseGate):
    """One value per token, between 0 and `factor`.

    Args:
        channels: of the branch.
        read: how many of the first channels it reads; all when None.
        factor: 2 lets it start at 1 and grow or fall; 1 is a plain σ, which starts at a half.
        spread: standard deviation of its first weights. At 0 all tokens start alike.
    """

    def __init__(
        self,
        channels: int,
        read: int | None = None,
        factor: float = 2.0,
        spread: float = 0.0,
    ) -> None:
        super().__init__(channels, 1, read, factor, spread)
        # A vector: files and finished runs have it so.
        self.weight = nn.Parameter(self.weight.detach()[0])
