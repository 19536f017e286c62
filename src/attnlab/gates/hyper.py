"""Hyper-connections: the state becomes n streams, which learned numbers read, write and carry.

After Zhu et al. (ICLR 2025), in their static form: the numbers do not depend on the input. With X
of n streams a step is `X ← C X + w ⊗ f(r X)`, with a row r, a column w and a matrix C. At first
each stream is a copy of the state, C = I and w = 1, and a row reads one stream, in turn, so that a
trained network answers as before, to the bit, and the streams come apart with training.

What a step's own row reads is the state that the network hands to it, so each step has the row of
the *next* one (`read`): after the last it is a mean, what follows reads. That the first row is
missing, for it would read copies, is ours.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab._checked import check_whole
from attnlab._types import Maps
from attnlab.gates._gate import ANY_RANK, StepGate

_SAME = 1e-12
"""Sums over streams that differ by less, in float64, are the same."""


class HyperConnections(StepGate):
    """The carry, the column that writes and the row that is read next, of one step.

    Its value is Δt, how much of the branch the next step reads: `read · write`.

    Args:
        channels: of the branch.
        streams: how many; 1 is two learned numbers per step.
    """

    ranks = ANY_RANK

    def __init__(self, channels: int, streams: int = 4) -> None:
        super().__init__(channels)
        check_whole("streams", streams, 1)
        self.streams = streams
        self.matrix = nn.Parameter(torch.eye(streams))
        self.write = nn.Parameter(torch.ones(streams))
        self.read = nn.Parameter(torch.full((streams,), 1 / streams))

    def forward(self, shortcut: Maps, branch: Maps) -> Float[Tensor, "1 channels *ones"]:
        self.check_input(branch)
        del shortcut
        size = (self.read * self.write).sum().to(branch.dtype)
        return size.expand(1, self.channels, *(1,) * (branch.dim() - 2))

    def carried(self, streams: Float[Tensor, n * state]) -> Float[Tensor, n * state]:
        """Return `C X`, the streams as they are carried on."""
        # No matrix product: on some machines those round, and the identity must not.
        matrix = self.matrix.to(streams.dtype)
        return (matrix.view(*matrix.shape, *(1,) * (streams.dim() - 1)) * streams).sum(1)

    def reading(self, streams: Float[Tensor, n * state]) -> Float[Tensor, "*state"]:
        """`r X`, of the next step."""
        return (_beside(self.read, streams) * streams).sum(0)

    def written(self, branch: Float[Tensor, "*state"]) -> Float[Tensor, n * state]:
        """Return `w ⊗ f`, what the branch adds to each stream."""
        return _beside(self.write, branch[None]) * branch

    def read_one(self, stream: int | None) -> None:
        """Let the next step read this stream, counted round; the mean of all if None."""
        with torch.no_grad():
            self.read.fill_(0 if stream is not None else 1 / self.streams)
            if stream is not None:
                self.read[stream % self.streams] = 1

    def start_constant(self) -> float:
        nn.init.eye_(self.matrix)
        nn.init.ones_(self.write)
        nn.init.constant_(self.read, 1 / self.streams)
        return 1.0

    def extra_repr(self) -> str:
        return f"{self.channels}, streams={self.streams}"


def _beside(numbers: Tensor, streams: Tensor) -> Tensor:
    return numbers.to(streams.dtype).view(-1, *(1,) * (streams.dim() - 1))


@torch.no_grad()
def plain_sizes(chain: Sequence[HyperConnections]) -> list[float] | None:
    """The μ of each step, if all that `chain` reads are sums `x₀ + Σ μ f` of one state, so that a
    network of one stream computes it; None if two steps read different sums."""
    first = torch.ones(chain[0].streams, dtype=torch.float64)
    terms = [first]
    """What each stream has of x₀, then of each branch."""
    sizes: list[float] = []
    for gate in chain:
        matrix, write, read = (
            each.detach().cpu().double() for each in (gate.matrix, gate.write, gate.read)
        )
        terms = [*(matrix @ term for term in terms), write]
        found = [float(read @ term) for term in terms]
        sizes.append(found[-1])
        wanted = [1.0, *sizes]
        if not all(abs(one - other) <= _SAME for one, other in zip(found, wanted, strict=True)):
            return None
    return sizes
