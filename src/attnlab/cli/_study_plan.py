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
    from attnlab.lab.study import PlannedStudy, Study


@dataclass(frozen=True)
class PlanStudy:
    """The runs of a study, what is done, and how long the rest will take on this machine.

    Examples:
      attnlab study plan demo
      attnlab study plan stepnet-table1 --small
      attnlab study plan stepnet-table2 --steps a100.toml --devices 64 --price 2.5
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
    devices: int | None = None
    """Also what it costs on this many devices like the one that was measured, a run on each."""
    price: float | None = None
    """--devices: of one for an hour, in any currency."""
    steps: Path | None = None
    """Take the seconds per image of this table of another device, a TOML file, and time nothing."""
    write_steps: Path | None = None
    """Write the seconds per image that were timed here into such a table."""


def plan_command(action: PlanStudy) -> None:
    """Print the plan, and the seeds that an effect needs."""
    from attnlab._errors import InputError
    from attnlab.lab.study.cost import read_steps
    from attnlab.lab.study.estimate import plan_study

    _check(action)
    table = None if action.steps is None else read_steps(action.steps)
    found = asked_study(action)
    with _progress() as report:
        plan = plan_study(found, action.out, report, steps=table)
    _print_rows(plan, found.title or found.name)
    runs = len(plan.runs)
    print(f"{counted(runs, 'run')}, {runs - len(plan.left)} done, {len(plan.left)} left")
    if plan.left and plan.seconds_left is not None:
        where = "this machine" if table is None else table.device
        how = "a step of each network in a small batch" if table is None else "the table's steps"
        if found.devices > 1:
            how = f"{how} on one of the {found.devices} devices that a run has"
        print(
            f"about {duration(plan.seconds_left)} one after the other on {where} (an "
            f"estimate: {how}, times the number of images)"
        )
    _print_cost(plan, action)
    noticed = ((cell.data, note) for cell, each in plan.estimates.items() for note in each.notes)
    for data, note in dict.fromkeys(noticed):
        print(f"{data}: {note}")
    if action.write_steps is not None:
        _write_steps(plan, action.write_steps)
    # For another machine it does not matter what this one has.
    problems = ["" if table else plan.problem, *(each.problem for each in plan.estimates.values())]
    if any(problems):
        told = "\n".join(dict.fromkeys(problem for problem in problems if problem))
        raise InputError(f"The study cannot be run as it is. {told}")
    _print_seeds(found, action)
    print_study_python(action, f"attnlab.lab.study.plan_study(study, {action.out!r})")


def _print_rows(plan: PlannedStudy, title: str) -> None:
    """Print a row for each cell: how many of its runs are done, and how long one takes."""
    rows = []
    for cell, estimate in plan.estimates.items():
        pairs = zip(plan.runs, plan.states, strict=True)
        states = [state for run, state in pairs if run.cell == cell]
        each = "" if estimate.seconds is None else duration(estimate.seconds)
        done = f"{states.count('done')} of {len(states)}"
        rows.append([cell.group, cell.row, done, each, estimate.problem or estimate.basis])
    heads = ["data and backbone", "module", "done", "per run", "estimated from"]
    console().print(table_of(heads, rows, title, text=(0, 1, 4)))


def _check(action: PlanStudy) -> None:
    from attnlab._checked import check_whole
    from attnlab._errors import OptionError

    for name, value in (("effect", action.effect), ("price", action.price)):
        if value is not None and not 0 < value < float("inf"):
            raise OptionError(f"Expected --{name} to be a number above 0 but got {value:g}.")
    if action.devices is not None:
        check_whole("--devices", action.devices, 1)
    elif action.price is not None:
        raise OptionError("--price is for --devices: say how many there are.")
    if action.steps is not None and action.write_steps is not None:
        raise OptionError("--write-steps writes what is timed, and with --steps nothing is.")


def _print_cost(plan: PlannedStudy, action: PlanStudy) -> None:
    """Hours and money, with the spread of the steps."""
    cost = None if action.devices is None else plan.cost(action.devices, action.price)
    if cost is None or not plan.left:
        return
    low, middle, high = (duration(each) for each in cost.seconds)
    work = [f"{each / 3600:,.1f}" for each in cost.device_seconds]
    text = (
        f"on {counted(cost.devices, 'device')}, a run on each: about {middle} ({low} to {high}); "
        f"{work[1]} device hours ({work[0]} to {work[2]})"
    )
    if cost.money is not None:
        money = [f"{each:,.2f}" for each in cost.money]
        text += f", {money[1]} ({money[0]} to {money[2]}) at {cost.price:g} an hour"
    print(
        f"{text}. Calculated: the spread is that of the steps alone, without waiting for data, "
        f"measurements after training, and runs that fail"
    )


def _write_steps(plan: PlannedStudy, file: Path) -> None:
    import torch

    from attnlab._errors import InputError
    from attnlab.lab.study.cost import write_steps
    from attnlab.results.environment import processor

    timed = {
        f"{cell.backbone} {cell.row}": each.step
        for cell, each in plan.estimates.items()
        if each.step is not None and each.basis == "measured step"
    }
    if not timed:
        raise InputError("No step was timed: each row has finished runs, or none could be built.")
    gpu = torch.cuda.is_available()
    device = torch.cuda.get_device_name() if gpu else processor()
    print(f"wrote {write_steps(file, device, timed)}")


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
