"""`attnlab study plan`: what there is to do, and how long it takes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab._words import counted
from attnlab.cli._show import console
from attnlab.cli._study_progress import duration
from attnlab.cli._study_shared import Name, asked_study, print_study_python, table_of

if TYPE_CHECKING:
    from attnlab.lab.study import Study


@dataclass(frozen=True)
class PlanStudy:
    """The runs of a study, what is done, and how long the rest will take on this machine.

    Examples:
      attnlab study plan demo
      attnlab study plan stepnet-table1 --small
    """

    study: Name
    """A TOML file, or the name of one in studies/."""
    small: bool = False
    """The form of a paper's table that runs in minutes."""
    out: str = "runs"
    """Where the runs are: a folder or an address."""
    import_from: tuple[Path, ...] = ()
    """Folders with your own classes that the study names, as in "my_gates.MyGate"."""
    effect: float = 1.0
    """How many seeds show a difference of this size? In the unit of the study's result."""


def plan_command(action: PlanStudy) -> None:
    """Print the plan, and the seeds that an effect needs."""
    from attnlab._errors import InputError, OptionError
    from attnlab.lab.study.estimate import plan_study

    if not 0 < action.effect < float("inf"):
        raise OptionError(f"Expected --effect to be a number above 0 but got {action.effect:g}.")
    found = asked_study(action)
    with _progress() as report:
        plan = plan_study(found, action.out, report)
    rows = []
    for cell, estimate in plan.estimates.items():
        pairs = zip(plan.runs, plan.states, strict=True)
        states = [state for run, state in pairs if run.cell == cell]
        each = "" if estimate.seconds is None else duration(estimate.seconds)
        done = f"{states.count('done')} of {len(states)}"
        rows.append([cell.group, cell.row, done, each, estimate.problem or estimate.basis])
    heads = ["data and backbone", "module", "done", "per run", "estimated from"]
    console().print(table_of(heads, rows, found.title or found.name, text=(0, 1, 4)))
    runs = len(plan.runs)
    print(f"{counted(runs, 'run')}, {runs - len(plan.left)} done, {len(plan.left)} left")
    if plan.left and plan.seconds_left is not None:
        print(
            f"about {duration(plan.seconds_left)} one after the other on this machine (an "
            f"estimate: a step of each network in a small batch, times the number of images)"
        )
    noticed = ((cell.data, note) for cell, each in plan.estimates.items() for note in each.notes)
    for data, note in dict.fromkeys(noticed):
        print(f"{data}: {note}")
    problems = [plan.problem, *(each.problem for each in plan.estimates.values())]
    if any(problems):
        told = "\n".join(dict.fromkeys(problem for problem in problems if problem))
        raise InputError(f"The study cannot be run as it is. {told}")
    _print_seeds(found, action)
    print_study_python(action, f"attnlab.lab.study.plan_study(study, {action.out!r})")


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """What is being timed: in one place on a terminal, elsewhere a line each. To standard error,
    since it is not part of the plan."""
    if not sys.stderr.isatty():
        yield lambda text: print(text, file=sys.stderr, flush=True)
        return
    from rich.console import Console

    with Console(stderr=True).status("planning") as shown:
        yield shown.update


def _print_seeds(found: Study, action: PlanStudy) -> None:
    from attnlab.lab.study import show_study
    from attnlab.lab.study.status import seeds_for_effect

    table = show_study(found, action.out)
    unit = table.metric.difference_unit
    for need in seeds_for_effect(table, action.effect):
        fixed, anytime = (
            "more than 1000" if number is None else str(number)
            for number in (need.fixed, need.anytime)
        )
        print(
            f"{need.group} {need.row}: to show a difference of {action.effect:g} {unit}".rstrip()
            + f" at the spread seen so far ({need.spread:.3g}, {need.seen} seeds) takes {fixed} "
            f"seeds fixed beforehand, {anytime} if you look on the way"
        )
