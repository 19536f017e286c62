"""The ledger's entries, by name: each module's public functions without
parameters, in their order."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType

from tests.tools.entries import (
    capture,
    commands,
    commands_digits,
    detection,
    dynamics,
    fold,
    insert,
    logs,
    networks,
    noise,
    operators,
    place,
    shorten,
    statistics,
    stiffness,
    stripe,
    study,
    style,
)


def _of_module(module: ModuleType, prefix: str) -> dict[str, Callable[[], object]]:
    return {
        f"{prefix}.{name}": function
        for name, function in vars(module).items()
        if inspect.isfunction(function)
        and function.__module__ == module.__name__
        and not name.startswith("_")
        and not inspect.signature(function).parameters
    }


ENTRIES: dict[str, Callable[[], object]] = {
    **_of_module(insert, "insert"),
    **_of_module(fold, "fold"),
    **_of_module(stiffness, "stiffness"),
    **_of_module(capture, "capture"),
    **_of_module(stripe, "stripe"),
    **_of_module(place, "place"),
    **_of_module(shorten, "shorten"),
    **_of_module(noise, "noise"),
    **_of_module(networks, "networks"),
    **_of_module(operators, "operators"),
    **_of_module(dynamics, "dynamics"),
    **_of_module(statistics, "statistics"),
    **_of_module(logs, "logs"),
    **_of_module(detection, "detection"),
    **_of_module(style, "style"),
    **_of_module(study, "study"),
    **_of_module(commands, "commands"),
    **_of_module(commands_digits, "commands.digits"),
}
