"""Every instrument, once: its command, its Python line, its JSON, its table and its page follow."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnlab._errors import unknown_name

if TYPE_CHECKING:
    from attnlab.results.base import Result


@dataclass(frozen=True)
class Instrument:
    """A function `function(network, *, settings…)` that returns a `Result`, and where it is.

    It is imported when it is used, so that a list of commands costs nothing.
    """

    name: str
    module: str
    what: str
    """In one line, for the list of commands."""
    example: str
    """A command that runs as it is written."""
    only_in_python: tuple[str, ...] = ()
    """Arguments that cannot be written in a command."""
    comparison: str = ""
    """Where the function is that compares several networks, `name(subjects, results, *,
    settings…)`, if there is one."""
    function: str = ""
    """What the function is called in Python, if not as the command."""

    @property
    def python_name(self) -> str:
        """What the function is called in Python, as an attribute of `attnlab`."""
        return self.function or self.name

    @property
    def measure(self) -> Callable[..., Any]:
        """The function, imported."""
        return _imported(self.module, self.python_name)

    @property
    def compare(self) -> Callable[..., Any] | None:
        """The function that compares several networks."""
        module, _, name = self.comparison.rpartition(".")
        return _imported(module, name) if module else None


INSTRUMENTS: dict[str, Instrument] = {
    each.name: each
    for each in (
        Instrument(
            "stiffness",
            "attnlab.instruments.stiffness.measure",
            "NSI per step, TNS, the stiffest step",
            "attnlab stiffness resnet20 --data digits",
            ("loader", "grid", "example", "name", "progress"),
            comparison="attnlab.instruments.stiffness.compare_networks",
        ),
        Instrument(
            "noise",
            "attnlab.instruments.noise.measure",
            "what a network keeps under noise in its norms",
            "attnlab noise resnet20 --data digits",
            comparison="attnlab.instruments.noise.compare_noise",
            function="noise_response",
        ),
    )
}


def _imported(module: str, name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def result_kind(form: str) -> type[Result] | None:
    """The kind of result that files of this format hold; None if no instrument finds such."""
    from attnlab.results.base import FORMATS

    for each in INSTRUMENTS.values():
        importlib.import_module(each.module)  # which makes the formats of its results known
    return FORMATS.get(form)


def instrument_named(name: str) -> Instrument:
    """The instrument `name`, or an error with the nearest name."""
    if name not in INSTRUMENTS:
        raise unknown_name("instrument", name, INSTRUMENTS)
    return INSTRUMENTS[name]
