"""A `where` that asks for a measurement: which run is measured, and what was chosen."""

from __future__ import annotations

from typing import Any

from attnlab.lab.training.config import RunConfig
from attnlab.residuals.where import measured_word, split_inside


def source_config(config: RunConfig) -> RunConfig | None:
    """The run that `where` is chosen from; None where it needs no measurement."""
    where = config.asks_for_measurement
    if where is None:
        return None
    if measures_gates(where):
        return config.model_copy(update={"where": None})
    plain: dict[str, Any] = {
        "attention": "none",
        "gate_options": {},
        "where": None,
        "start": "paper",
    }
    return config.model_copy(update={**plain, "place": "branch", "shared": False})


def stand_in_config(config: RunConfig) -> RunConfig:
    """A run of the same cost whose blocks are known: to estimate, or to look at the network."""
    where = config.asks_for_measurement
    found = measured_word(where)
    if where is None or found is None:
        return config
    module, _ = split_inside(where)
    text = f"random:{found[1]}@0"
    return config.model_copy(update={"where": text if module is None else f"in:{module} {text}"})


def measures_gates(where: str) -> bool:
    found = measured_word(where)
    return found is not None and found[0] == "spread"
