"""The list of checks and how they are run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from attnlab._errors import AttnlabError
from attnlab.testing import _checks_form, _checks_learning, _checks_numerics
from attnlab.testing._law import survives
from attnlab.testing._probe import Build
from attnlab.testing._tools import Tool


class ConformanceError(AttnlabError, AssertionError):
    """A gate failed a check; the message names the check and what was seen."""


@dataclass(frozen=True)
class Check:
    """One property that every gate must have: call it with what builds the gate."""

    name: str
    run: Callable[[Build], None]

    def __call__(self, build: Build) -> None:
        try:
            self.run(build)
        except AssertionError as error:
            raise ConformanceError(f"{self.name}: {error}") from error

    def __str__(self) -> str:
        return self.name


def gate_checks(tools: Sequence[Tool] | None = None) -> list[Check]:
    """Return all checks, for `pytest.mark.parametrize("check", gate_checks(), ids=str)`.

    `tools` are those that a network with the gate must survive; None for `exchanging_tools()`.
    """
    modules = (_checks_form, _checks_numerics, _checks_learning)
    runs = [run for module in modules for run in module.CHECKS]
    return [Check(run.__name__, run) for run in (*runs, survives(tools))]


def check_gate(build: Build, tools: Sequence[Tool] | None = None) -> None:
    """Run all checks on the gates that `build(channels)` makes; raise at the first that fails."""
    for check in gate_checks(tools):
        check(build)
