"""A plain network with as many parameters as another: wider hidden layers in its blocks.

Ours. A gate adds parameters, so a fair plain network to compare it with has as many. Depth, stages
and the width of the states stay, so the two still have the same trajectory to compare; only what is
inside a block becomes wider.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attnlab._checked import check_whole
from attnlab._errors import OptionError

HiddenSize = Callable[[int], int]
"""How many parameters of a block depend on its hidden width, for a given hidden width."""


def check_parameters(wanted: int, least: int) -> None:
    """Refuse a number of parameters that widening cannot reach."""
    check_whole("parameters", wanted, 1)
    if wanted < least:
        raise OptionError(
            f"Expected parameters of at least {least:,}, which the network has as it is, but got "
            f"{wanted:,}. Its blocks can be made wider, not narrower."
        )


def widened(widths: Sequence[int], sizes: Sequence[HiddenSize], missing: int) -> tuple[int, ...]:
    """The hidden widths that add as nearly `missing` parameters as can be, evenly over the blocks.

    One channel at a time goes to the block that has been widened least in proportion, the first of
    these, among those for which there is room; at the end, once to the cheapest if that brings the
    number nearer. So it is missed by at most half of what the cheapest channel costs: 145
    parameters in a ResNet-20.
    """
    hidden = list(widths)
    while True:
        costs = [size(width + 1) - size(width) for size, width in zip(sizes, hidden, strict=True)]
        room = [block for block, cost in enumerate(costs) if cost <= missing]
        if not room:
            break
        chosen = min(room, key=lambda block: hidden[block] / widths[block])
        missing -= costs[chosen]
        hidden[chosen] += 1
    if min(costs) < 2 * missing:
        hidden[costs.index(min(costs))] += 1
    return tuple(hidden)
