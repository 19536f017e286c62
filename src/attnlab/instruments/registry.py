"""Every instrument, once: its command, its Python line, its JSON, its table and its page follow."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
    """What the instrument measures, in one line of the list of commands."""
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
    def measure(self) -> Callable[..., Result]:
        """The function, imported."""
        return _imported(self.module, self.python_name)

    @property
    def compare(self) -> Callable[..., Result] | None:
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
            "stripe",
            "attnlab.instruments.stripe.measure",
            "gates over images: are they constant?",
            "attnlab stripe resnet20 --gate se --data digits",
            ("loader", "name"),
        ),
        Instrument(
            "maps",
            "attnlab.instruments.maps.measure",
            "attention maps: do they depend on the input?",
            "attnlab maps timm:test_vit --data fake",
            ("loader", "name", "progress"),
        ),
        Instrument(
            "place",
            "attnlab.instruments.place.measure",
            "which blocks should get a gate, and why",
            "attnlab place resnet20 --budget 3 --data digits",
            ("loader",),
        ),
        Instrument(
            "noise",
            "attnlab.instruments.noise.measure",
            "what a network keeps under noise in its norms",
            "attnlab noise resnet20 --data digits",
            comparison="attnlab.instruments.noise.compare_noise",
            function="noise_response",
        ),
        Instrument(
            "steps",
            "attnlab.instruments.forms.measure",
            "what each step carries, reads, writes; its own gates",
            "attnlab steps resnet20 --gate se --data digits",
            ("loader", "name"),
            function="describe_steps",
        ),
        Instrument(
            "trajectory",
            "attnlab.instruments.trajectory.measure",
            "where the states of a network go, step by step",
            "attnlab trajectory resnet20 --data digits",
            ("loader", "name"),
        ),
    )
}


_RESULTS = ("attnlab.instruments.removal.result", "attnlab.surgery.folding.receipt")
"""Where the results of commands are that have a file of their own."""


def _imported(module: str, name: str) -> Callable[..., Result]:
    found: Callable[..., Result] = getattr(importlib.import_module(module), name)
    return found


def result_kind(form: str) -> type[Result] | None:
    """The kind of result that files of this format hold; None if no instrument finds such."""
    from attnlab.results.base import FORMATS

    instruments = (f"{each.module.rpartition('.')[0]}.result" for each in INSTRUMENTS.values())
    for module in (*instruments, *_RESULTS):
        # Makes its formats known. What measures is not imported: a page needs no network.
        importlib.import_module(module)
    if form not in FORMATS:
        for each in INSTRUMENTS.values():
            _ = each.compare  # a comparison of networks has a format of its own
    return FORMATS.get(form)
