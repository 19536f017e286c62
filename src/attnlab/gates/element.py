"""A gate for each token and channel, after the elementwise gated attention of Qiu et al. (2025).

As `head`, it acts before the output projection in a network with attention, as theirs does. It
has as many parameters as a linear layer. `read=k` makes it smaller, C (k + 1) instead of
C (C + 1).
"""

from __future__ import annotations

from attnlab.gates._tokenwise import TokenwiseGate


class ElementGate(TokenwiseGate):
    """One value per token and channel, between 0 and `factor`.

    Args:
        channels: of the branch.
        read: how many of the first channels it reads; all when None.
        factor: 2 lets it start at 1 and grow or fall; 1 is a plain σ, as in the paper.
        spread: standard deviation of its first weights. At 0 all tokens start alike.
        state_channels: of the state that it reads, where it has others than the branch.
    """

    at_heads = True

    def __init__(
        self,
        channels: int,
        read: int | None = None,
        factor: float = 2.0,
        spread: float = 0.0,
        state_channels: int | None = None,
    ) -> None:
        super().__init__(channels, channels, read, factor, spread, state_channels)
