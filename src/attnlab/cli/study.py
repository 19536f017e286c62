"""`attnlab study`: many runs, many seeds, here or on a cluster, and what they say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from attnlab.cli._show import Justify, console, print_python, table

if TYPE_CHECKING:
    from attnlab.study import Executor, Study, StudyTable
    from attnlab.study.grid import PlannedRun
    from attnlab.study.worker import Outcome

Name = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="STUDY")]


@dataclass(frozen=True)
class New:
    """Write a study file to start from.

    Examples:
      attnlab study new mine.toml
    """

    path: Annotated[Path, tyro.conf.Positional]
    """Where to; an existing file is not touched."""


@dataclass(frozen=True)
class Plan:
    """The runs of a study, what is done, and how long the rest will take on this machine.

    Examples:
      attnlab study plan demo
      attnlab study plan stepnet-table1 --small
    """

    study: Name
    """A TOML file, or the name of one in studies/."""
    small: bool = False
    """The form of a paper's table that runs in minutes."""
    out: Path = Path("runs")
    """Where the runs are."""


@dataclass(frozen=True)
class Run:
    """Finish every run that is not finished. The same again resumes; several may do it at a time.

    Examples:
      attnlab study run demo --slots 2
      attnlab study run stepnet-table1 --small
      attnlab study run mine.toml --on ray --address auto --gpus 1
      attnlab study run mine.toml --on slurm --gpus 1 --set slurm_partition=gpu timeout_min=720
    """

    study: Name
    """A TOML file, or the name of one in studies/."""
    small: bool = False
    """The form of a paper's table that runs in minutes."""
    out: Path = Path("runs")
    """Where the runs are; shared by all machines."""
    on: Literal["local", "ray", "slurm"] = "local"
    """This machine, a Ray cluster, or Slurm."""
    slots: int | None = None
    """local: runs at a time. One per GPU, or per core where there is none, if left out."""
    cpus: int = 1
    """ray, slurm: per run."""
    gpus: int = 0
    """ray, slurm: per run."""
    address: str | None = None
    """ray: of the cluster; RAY_ADDRESS, or this machine, if left out."""
    options: Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="KEY=VALUE")] = ()
    """slurm: parameters of submitit."""


@dataclass(frozen=True)
class Status:
    """How far a study is: done, running, failed, stopped, waiting.

    Examples:
      attnlab study status demo
    """

    study: Name
    """A TOML file, or the name of one in studies/."""
    small: bool = False
    """The form of a paper's table that runs in minutes."""
    out: Path = Path("runs")
    """Where the runs are."""


@dataclass(frozen=True)
class Show:
    """The table of what is finished: intervals, cost, TNS, fold error, beside the paper's figures.

    Examples:
      attnlab study show demo
      attnlab study show stepnet-table1 --markdown table.md
    """

    study: Name
    """A TOML file, or the name of one in studies/."""
    small: bool = False
    """The form of a paper's table that runs in minutes."""
    out: Path = Path("runs")
    """Where the runs are."""
    markdown: Path | None = None
    """Also write the table to this file."""


Action = New | Plan | Run | Status | Show


def study(action: tyro.conf.OmitSubcommandPrefixes[Action]) -> None:
    """Many runs, many seeds, here or on a cluster, and what they say beyond seed noise.

    Examples:
      attnlab study new mine.toml
      attnlab study plan demo
      attnlab study run demo
      attnlab study status demo
      attnlab study show demo
    """
    if isinstance(action, New):
        _new(action)
    elif isinstance(action, Plan):
        _plan(action)
    elif isinstance(action, Run):
        _run(action)
    elif isinstance(action, Status):
        _status(action)
    else:
        _show(action)


def _new(action: New) -> None:
    from attnlab.study.template import new_study

    path = new_study(action.path)
    print(f"wrote {path}")
    print(f"next: attnlab study plan {path}")


def _load(action: Plan | Run | Status | Show) -> tuple[Study, list[PlannedRun]]:
    from attnlab.study import load_study, planned_runs

    found = load_study(action.study)
    if action.small:
        found = found.smaller()
    return found, planned_runs(found)


def _python(action: Plan | Run | Status | Show, *lines: str) -> None:
    small = ".smaller()" if action.small else ""
    load = f"study = attnlab.study.load_study({action.study!r}){small}"
    print()
    print_python("import attnlab.study", load, *lines)


def _plan(action: Plan) -> None:
    from attnlab.study.estimate import plan_study

    found, runs = _load(action)
    plan = plan_study(runs, action.out)
    rows = []
    for cell, estimate in plan.estimates.items():
        own = [run for run in runs if run.cell == cell]
        states = [plan.states[run.run_id] for run in own]
        each = "" if estimate.seconds is None else _duration(estimate.seconds)
        done = f"{states.count('done')} of {len(own)}"
        rows.append([cell.group, cell.row, done, each, estimate.problem or estimate.basis])
    heads = ["data and backbone", "module", "done", "per run", "estimated from"]
    console().print(_table(heads, rows, found.title or found.name, text=(0, 1, 4)))
    print(f"{len(runs)} runs, {len(runs) - len(plan.left)} done, {len(plan.left)} left")
    if plan.left and plan.seconds_left is not None:
        print(
            f"about {_duration(plan.seconds_left)} one after the other on this machine (an "
            f"estimate: a step in a small batch, times the number of images)"
        )
    _python(
        action, f"attnlab.study.plan_study(attnlab.study.planned_runs(study), {str(action.out)!r})"
    )


def _run(action: Run) -> None:
    from attnlab.study import run_study, study_table
    from attnlab.study.store import Store
    from attnlab.train.surroundings import terminating

    found, runs = _load(action)
    executor = _executor(action)
    finished = sum(result is not None for result in map(Store(action.out).result, _ids(runs)))
    print(f"{found.title or found.name}: {len(runs)} runs, {finished} done")
    print(f"on {executor.describe()}; results in {action.out}")
    number = finished
    waited_for: set[str] = set()

    def report(outcome: Outcome) -> None:
        nonlocal number
        job = outcome.job
        if outcome.status == "busy":
            if job.run_id not in waited_for:
                print(f"  {job.label}: {outcome.message} works on it; waiting", flush=True)
            waited_for.add(job.run_id)
            return
        if outcome.status == "failed":
            print(f"  {job.label}: FAILED: {outcome.message}", flush=True)
            return
        number += 1
        result = Store(action.out).result(job.run_id)
        accuracy = (
            "" if result is None else f"top-1 {100 * result.top1:.2f} %, {result.seconds:.0f} s"
        )
        print(f"  {number} of {len(runs)}  {job.label}: {accuracy}", flush=True)

    try:
        with terminating():  # so that the runs are stopped as well
            outcomes = run_study(found, action.out, executor, report)
    except KeyboardInterrupt:
        print("stopped; the same command resumes from the last checkpoints")
        raise SystemExit(130) from None
    made = study_table(found, runs, action.out)
    Store(action.out).write_table(found, made.to_dict())
    _print_table(made)
    _write_report(action, found.name)
    _python(action, f"attnlab.study.run_study(study, {str(action.out)!r})")
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    if failed:
        print(f"\n{len(failed)} runs failed; log.txt and failure.json of each say why:")
        for outcome in failed:
            print(f"  {outcome.job.directory}")
        raise SystemExit(1)


def _write_report(action: Run, name: str) -> None:
    from attnlab.report import report
    from attnlab.study.store import Store

    page = Store(action.out).study_directory(name) / "report.html"
    print(f"wrote {report(action.out, page, name)}")


def _executor(action: Run) -> Executor:
    from attnlab._errors import OptionError
    from attnlab.study import LocalExecutor, RayExecutor, SlurmExecutor

    for name, given, where in (
        ("slots", action.slots is not None, "local"),
        ("address", action.address is not None, "ray"),
        ("set", bool(action.options), "slurm"),
    ):
        if given and action.on != where:
            raise OptionError(f"--{name} is for --on {where}, but this is --on {action.on}.")
    if action.on == "ray":
        return RayExecutor(action.address, action.cpus, action.gpus)
    if action.on == "slurm":
        from attnlab.cli.try_ import _key_value

        parameters = dict(_key_value(text) for text in action.options)
        return SlurmExecutor(action.out / "slurm", action.cpus, action.gpus, parameters)
    return LocalExecutor(action.slots)


def _status(action: Status) -> None:
    from attnlab.study.lock import owner
    from attnlab.study.store import Store, read_failure

    found, runs = _load(action)
    store = Store(action.out)
    rows = []
    for run in runs:
        state = store.state(run.run_id)
        directory = store.directory(run.run_id)
        detail = ""
        if state == "running":
            detail = owner(directory)
        elif state == "failed":
            failure = read_failure(directory)
            detail = failure.error if failure else ""
        rows.append([str(run), state, run.run_id, detail])
    console().print(_table(["run", "state", "id", ""], rows, found.title, text=(0, 1, 2, 3)))
    states = [row[1] for row in rows]
    print(", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)))
    _python(action, f"attnlab.study.Store({str(action.out)!r}).state(run_id)")


def _show(action: Show) -> None:
    from attnlab._files import write_whole
    from attnlab.study import study_table
    from attnlab.study.show import markdown
    from attnlab.study.store import Store

    found, runs = _load(action)
    made = study_table(found, runs, action.out)
    _print_table(made)
    if any(row.top1 for group in made.groups for row in group.rows):
        Store(action.out).write_table(found, made.to_dict())
    if action.markdown is not None:
        print(f"wrote {write_whole(action.markdown, markdown(made))}")
    _python(
        action,
        f"attnlab.study.study_table(study, attnlab.study.planned_runs(study), {str(action.out)!r})",
    )


def _print_table(made: StudyTable) -> None:
    from attnlab.study.show import accuracy_cells, cost_cells, footnotes

    screen = console()
    for group in made.groups:
        screen.print(_table(*accuracy_cells(group, made.level), f"\n{made.title}: {group.name}"))
        screen.print(_table(*cost_cells(group), None))
    for line in footnotes(made):
        screen.print(f"* {line}")


def _table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    title: str | None,
    text: Sequence[int] = (0,),
) -> object:
    sides: list[Justify] = ["left" if index in text else "right" for index in range(len(heads))]
    return table(list(zip(heads, sides, strict=True)), rows, title)


def _ids(runs: Sequence[PlannedRun]) -> list[str]:
    return [run.run_id for run in runs]


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
