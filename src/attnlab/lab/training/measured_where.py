"""A `where` that asks for a measurement: which run is measured, and what was chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attnlab._errors import InputError
from attnlab.lab.training.config import RunConfig
from attnlab.residuals.where import measured_word, split_inside
from attnlab.results import StoredRun
from attnlab.results.placement import FILE


def source_config(config: RunConfig) -> RunConfig | None:
    """The run that `where` is chosen from; None where it needs no measurement."""
    where = word_of(config)
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


def stand_in(config: RunConfig) -> RunConfig:
    """A run of the same cost whose blocks are known: to estimate, or to look at the network."""
    where = word_of(config)
    found = measured_word(where)
    if where is None or found is None:
        return config
    module, _ = split_inside(where)
    text = f"random:{found[1]}@0"
    return config.model_copy(update={"where": text if module is None else f"in:{module} {text}"})


def with_placement(config: RunConfig, folder: Path) -> RunConfig:
    """`config` with the blocks that were chosen for it."""
    if word_of(config) is None:
        return config
    stored = StoredRun(folder)
    found = stored.placement
    if found is None:
        stored.check(FILE)
        raise InputError(
            f"There is no {str(folder / FILE)!r}, which says what where={config.where!r} chose for "
            f"this run."
        )
    return config.model_copy(update={"where": found.where})


def word_of(config: RunConfig) -> str | None:
    """`where`, if it needs a measurement and there is a gate to place."""
    if config.attention == "none" or not isinstance(config.where, str):
        return None
    return config.where if measured_word(config.where) is not None else None


def measures_gates(where: str) -> bool:
    found = measured_word(where)
    return found is not None and found[0] == "spread"
