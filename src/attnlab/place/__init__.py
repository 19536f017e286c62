"""Where a gate belongs: blocks proposed by a strategy, with the reason for each."""

from attnlab.place.place import place as place
from attnlab.place.place import place_by_word as place_by_word
from attnlab.place.registry import list_strategies as list_strategies
from attnlab.place.result import BlockScore as BlockScore
from attnlab.place.result import Margin as Margin
from attnlab.place.result import Placement as Placement
from attnlab.place.strategy import Strategy as Strategy
