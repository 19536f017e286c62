"""The strategies, by name."""

from __future__ import annotations

from collections.abc import Mapping

from attnlab._errors import unknown_name
from attnlab.instruments.place.effect import EFFECT
from attnlab.instruments.place.gate_spread import SPREAD
from attnlab.instruments.place.stiffness import NSI_SPREAD, SOFTEST, STIFFEST, TNS
from attnlab.instruments.place.strategy import Strategy

STRATEGIES: Mapping[str, Strategy] = {
    each.name: each for each in (STIFFEST, SOFTEST, TNS, NSI_SPREAD, SPREAD, EFFECT)
}


def list_strategies() -> list[Strategy]:
    """Every strategy of placement, by its name."""
    return list(STRATEGIES.values())


def strategy_named(name: str) -> Strategy:
    """The strategy, or an error with the nearest name."""
    if name not in STRATEGIES:
        raise unknown_name("strategy", name, STRATEGIES)
    return STRATEGIES[name]
