"""Which blocks should get a gate."""

from __future__ import annotations

from tests.tools.entries.shared import labelled, network, picked

import attnlab

PLACEMENT = "strategy where budget per_stage images"


def shown(found: object) -> dict[str, object]:
    """A placement, or its JSON."""
    parts = picked(found, "blocks margins")
    return {
        **picked(found, PLACEMENT),
        "blocks": [picked(each, "label stage name chosen score") for each in parts["blocks"]],
        "margins": [
            picked(each, "stage chosen following score following_score margin")
            for each in parts["margins"]
        ],
    }


def _placed(budget: int | None, strategy: str, **options: object) -> object:
    return shown(attnlab.place(network(), budget, strategy, labelled(), **options))


def by_stiffness() -> object:
    chosen = ("stiffest", "softest", "tns", "nsi-spread")
    return {each: _placed(2, each) for each in chosen}


def by_stage() -> object:
    return {each: _placed(1, each, per_stage=True) for each in ("stiffest", "effect")}


def by_effect() -> object:
    return _placed(3, "effect")


def by_spread() -> object:
    return _placed(2, "spread")
