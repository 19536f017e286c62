"""Where a gate belongs: blocks proposed by a strategy, with the reason for each."""

from typing import TYPE_CHECKING

from attnlab._folders import handed_on

if TYPE_CHECKING:
    from attnlab.instruments.place.measure import place_by_word as place_by_word
    from attnlab.instruments.place.registry import list_strategies as list_strategies
    from attnlab.instruments.place.result import BlockScore as BlockScore
    from attnlab.instruments.place.result import Margin as Margin
    from attnlab.instruments.place.result import Placement as Placement
    from attnlab.instruments.place.strategy import Strategy as Strategy

__getattr__, __dir__ = handed_on(
    __name__,
    measure=("place_by_word",),
    registry=("list_strategies",),
    result=(
        "BlockScore",
        "Margin",
        "Placement",
    ),
    strategy=("Strategy",),
)
