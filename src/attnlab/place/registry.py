"""The strategies, by name."""

from __future__ import annotations

from collections.abc import Mapping

from attnlab._errors import unknown_name
from attnlab.place.by_chance import RANDOM
from attnlab.place.by_hand import HAND
from attnlab.place.effect import EFFECT
from attnlab.place.every_kth import EVERY
from attnlab.place.everywhere import ALL
from attnlab.place.gate_spread import SPREAD
from attnlab.place.stiffness import NSI_SPREAD, SOFTEST, STIFFEST, TNS
from attnlab.place.strategy import Strategy

STRATEGIES: Mapping[str, Strategy] = {
    each.name: each
    for each in (
        ALL,
        HAND,
        EVERY,
        RANDOM,
        STIFFEST,
        SOFTEST,
        TNS,
        NSI_SPREAD,
        SPREAD,
        EFFECT,
    )
}


def list_strategies() -> list[Strategy]:
    """All strategies."""
    return list(STRATEGIES.values())


def strategy_named(name: str) -> Strategy:
    """The strategy, or an error with the nearest name."""
    if name not in STRATEGIES:
        raise unknown_name("strategy", name, STRATEGIES)
    return STRATEGIES[name]
