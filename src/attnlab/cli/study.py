"""`attnlab study`: many runs, many seeds, here or on a cluster, and what they say."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from attnlab.cli._show import Justify, console, print_python, table
from attnlab.cli._study_progress import (
    duration,
    live,
    now,
    row_of,
    saved,
    showing,
    summary,
)

if TYPE_CHECKING:
    from attnlab.stored import Measured
    from attnlab.stored.study import RunEntry
    from attnlab.study import Executor, Study, StudyTable

_LOOK = 2.0
_TERMINATED = 143
"""128 + 15, as a shell writes it."""

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
    import_from: tuple[Path, ...] = ()
    """Folders with classes of yours that the study names, as in "my_gates.MyGate"."""
    effect: float = 1.0
    """How many seeds show a difference of this size? In the unit of the study's result."""


@dataclass(frozen=True)
class Run:
    """Finish every run that is not finished. The same again resumes; several may do it at a time.

    Examples:
      attnlab study run demo --slots 2
      attnlab study run stepnet-table1 --small
      attnlab study run mine.toml --until-decided --max-seeds 12
      attnlab study run mine.toml --on ray --address auto --gpus 1
      attnlab study run mine.toml --on slurm --gpus 1 --set slurm_partition=gpu timeout_min=720
    """

    study: Name
    """A TOML file, or the name of one in studies/."""
    small: bool = False
    """The form of a paper's table that runs in minutes."""
    out: Path = Path("runs")
    """Where the runs are; shared by all machines."""
    import_from: tuple[Path, ...] = ()
    """Folders with classes of yours that the study names, as in "my_gates.MyGate"."""
    until_decided: bool = False
    """Add seeds until every module is better or worse than the plain backbone."""
    max_seeds: int | None = None
    """--until-decided: stop at this many seeds; 30 if left out."""
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
    """How far a study is: done, running, failed, stopped, waiting; epochs, and the time left.

    Examples:
      attnlab study status demo
      attnlab study status demo --watch
    """

    study: Name
    """A TOML file, or the name of one in studies/."""
    small: bool = False
    """The form of a paper's table that runs in minutes."""
    out: Path = Path("runs")
    """Where the runs are."""
    import_from: tuple[Path, ...] = ()
    """Folders with classes of yours that the study names, as in "my_gates.MyGate"."""
    watch: bool = False
    """Look again every two seconds until no run is left to be done; Ctrl-C ends it."""


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
    import_from: tuple[Path, ...] = ()
    """Folders with classes of yours that the study names, as in "my_gates.MyGate"."""
    markdown: Path | None = None
    """Also write the table to this file."""
    include_stale: bool = False
    """Also runs that were made from other code, data or settings; then there is no verdict."""


@dataclass(frozen=True)
class Measure:
    """Measure the finished runs of a study again, without training: stiffness, gates, fold, speed.

    Examples:
      attnlab study measure demo
      attnlab study measure demo --only stiffness --images 1000
    """

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """Of a study that was run."""
    out: Path = Path("runs")
    """Where the runs are."""
    only: tuple[str, ...] = ()
    """These again, whether they are there or not: stiffness, gates, fold, speed, pictures."""
    images: int | None = None
    """On how many test images; as the study says if left out."""


Action = New | Plan | Run | Status | Show | Measure


def study(action: tyro.conf.OmitSubcommandPrefixes[Action]) -> None:
    """Many runs, many seeds, here or on a cluster, and what they say beyond seed noise.

    Examples:
      attnlab study new mine.toml
      attnlab study plan demo
      attnlab study run demo
      attnlab study status demo
      attnlab study show demo
      attnlab study measure demo --images 1000
    """
    if isinstance(action, New):
        _new(action)
    elif isinstance(action, Plan):
        _plan(action)
    elif isinstance(action, Run):
        _run(action)
    elif isinstance(action, Status):
        _status(action)
    elif isinstance(action, Measure):
        _measure(action)
    else:
        _show(action)


def _new(action: New) -> None:
    from attnlab.study.template import new_study

    path = new_study(action.path)
    print(f"wrote {path}")
    print(f"next: attnlab study plan {path}")


def _load(action: Plan | Run | Status | Show) -> Study:
    from attnlab._errors import InputError
    from attnlab._imported import import_from
    from attnlab.study import load_study

    if action.out.exists() and not action.out.is_dir():
        raise InputError(f"Expected --out to be a folder but {str(action.out)!r} is a file.")
    for folder in action.import_from:
        import_from(folder)
    found = load_study(action.study)
    found = found.smaller() if action.small else found
    if not found.has_plain:
        print(
            f"warning: the study {found.name!r} has no row without attention, so there will be no "
            f'Δ and no verdict. Add "none" to attention.',
            file=sys.stderr,
        )
    return found


def _python(action: Plan | Run | Status | Show, *lines: str) -> None:
    small = ".smaller()" if action.small else ""
    load = f"study = attnlab.study.load_study({action.study!r}){small}"
    folders = [f"sys.path.append({str(folder)!r})" for folder in action.import_from]
    print()
    print_python(*(["import sys"] if folders else []), "import attnlab", *folders, load, *lines)


def _plan(action: Plan) -> None:
    from attnlab._errors import InputError, OptionError
    from attnlab.study.estimate import plan_study

    if not 0 < action.effect < float("inf"):
        raise OptionError(f"Expected --effect to be a number above 0 but got {action.effect:g}.")
    found = _load(action)
    plan = plan_study(found, action.out)
    rows = []
    for cell, estimate in plan.estimates.items():
        pairs = zip(plan.runs, plan.states, strict=True)
        states = [state for run, state in pairs if run.cell == cell]
        each = "" if estimate.seconds is None else duration(estimate.seconds)
        done = f"{states.count('done')} of {len(states)}"
        rows.append([cell.group, cell.row, done, each, estimate.problem or estimate.basis])
    heads = ["data and backbone", "module", "done", "per run", "estimated from"]
    console().print(_table(heads, rows, found.title or found.name, text=(0, 1, 4)))
    runs = len(plan.runs)
    print(f"{runs} runs, {runs - len(plan.left)} done, {len(plan.left)} left")
    if plan.left and plan.seconds_left is not None:
        print(
            f"about {duration(plan.seconds_left)} one after the other on this machine (an "
            f"estimate: a step in a small batch, times the number of images)"
        )
    problems = [plan.problem, *(each.problem for each in plan.estimates.values())]
    if any(problems):
        told = "\n".join(dict.fromkeys(problem for problem in problems if problem))
        raise InputError(f"The study cannot be run as it is. {told}")
    _print_seeds(found, action)
    _python(action, f"attnlab.study.plan_study(study, {str(action.out)!r})")


def _print_seeds(found: Study, action: Plan) -> None:
    from attnlab.study import show_study
    from attnlab.study.status import seeds_for_effect

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


def _run(action: Run) -> None:
    from attnlab._checked import check_whole
    from attnlab._errors import OptionError
    from attnlab.study import run_study, run_until_decided, show_study, study_status
    from attnlab.train.surroundings import terminating

    if action.max_seeds is not None and not action.until_decided:
        raise OptionError("--max-seeds is for --until-decided.")
    if action.max_seeds is not None:
        check_whole("--max-seeds", action.max_seeds, 1)
    for name, value, least in (("cpus", action.cpus, 1), ("gpus", action.gpus, 0)):
        check_whole(f"--{name}", value, least)
    found = _load(action)
    executor = _executor(action)
    status = study_status(found, action.out)
    print(f"{found.title or found.name}: {len(status.runs)} runs, {status}")
    print(f"on {executor.describe()}; results in {action.out}")
    done = sum(run.state == "done" for run in status.runs)
    slots = executor.at_a_time or 1
    try:
        # So that the runs are stopped as well.
        with terminating(), showing(found, action.out, slots, done) as report:
            if action.until_decided:
                most = action.max_seeds or 30
                outcomes = run_until_decided(found, action.out, executor, report, most_seeds=most)
            else:
                outcomes = run_study(found, action.out, executor, report)
    except KeyboardInterrupt:
        _say_stopped(found, action.out, "by Ctrl-C")
        raise SystemExit(130) from None
    except BrokenPipeError:
        _say_stopped(found, action.out, "because nobody reads its output any more")
        raise
    except SystemExit as ended:
        if ended.code == _TERMINATED:
            _say_stopped(found, action.out, "by SIGTERM")
        raise
    _print_table(show_study(found, action.out))
    _write_report(action, found.name)
    call = f"run_until_decided(study, {str(action.out)!r}, most_seeds={action.max_seeds or 30})"
    if not action.until_decided:
        call = f"run_study(study, {str(action.out)!r})"
    _python(action, f"attnlab.study.{call}")
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    if failed:
        print(f"\n{len(failed)} runs failed; log.txt and failure.json of each say why:")
        for outcome in failed:
            print(f"  {outcome.job.directory}")
        raise SystemExit(1)


def _say_stopped(found: Study, out: Path, how: str) -> None:
    """To standard error, which is there when nobody reads the rest."""
    from attnlab.study import study_status

    status = study_status(found, out)
    print(
        f"stopped {how}: {saved(status)} in {out}. The same command resumes from there.",
        file=sys.stderr,
    )


def _write_report(action: Run, name: str) -> None:
    import attnlab
    from attnlab.study import Store

    page = Store(action.out).study_directory(name) / "report.html"
    print(f"wrote {attnlab.report(action.out, page, name)}")


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
        from attnlab.cli.try_ import key_value

        parameters = dict(key_value(text) for text in action.options)
        return SlurmExecutor(action.out / "slurm", action.cpus, action.gpus, parameters)
    return LocalExecutor(action.slots)


def _status(action: Status) -> None:
    from attnlab.study import study_status

    found = _load(action)
    if action.watch:
        _watch(found, action.out)
    status = study_status(found, action.out)
    rows = []
    for run, progress in zip(status.runs, status.progress, strict=True):
        label, state, *figures = row_of(progress, status.metric)
        rows.append([label, state, *figures, run.entry.run_id, run.detail])
    heads = ["run", "state", "epoch", "loss", status.metric.title, "left", "id", ""]
    console().print(_table(heads, rows, found.title, text=(0, 1, 6, 7)))
    print(status)
    print(summary(status))
    _python(action, f"print(attnlab.study.study_status(study, {str(action.out)!r}))")


def _watch(found: Study, out: Path) -> None:
    """On a terminal a table that is drawn again; elsewhere a line whenever something changed."""
    from attnlab.study import study_status

    def is_open() -> bool:
        states = {run.state for run in study_status(found, out).runs}
        return bool(states & {"running", "waiting", "stopped"})

    try:
        if sys.stdout.isatty():
            with live(lambda: now(found, out, 0)):
                while is_open():
                    time.sleep(_LOOK)
            return
        last = ""
        while is_open():
            text = str(study_status(found, out))
            if text != last:
                print(text, flush=True)
            last = text
            time.sleep(_LOOK)
    except KeyboardInterrupt:
        return


def _show(action: Show) -> None:
    from attnlab._files import write_whole
    from attnlab.study import show_study
    from attnlab.study.show import markdown

    found = _load(action)
    made = show_study(found, action.out, include_stale=action.include_stale)
    _print_table(made)
    if action.markdown is not None:
        print(f"wrote {write_whole(action.markdown, markdown(made))}")
    stale = ", include_stale=True" if action.include_stale else ""
    _python(action, f"table = attnlab.study.show_study(study, {str(action.out)!r}{stale})")


def _measure(action: Measure) -> None:
    from attnlab.study import measure_study

    only = action.only or None

    def report(entry: RunEntry, found: list[Measured]) -> None:
        names = ", ".join(f"{one.measurement} {one.seconds:.1f} s" for one in found)
        print(f"  {entry}: {names or 'nothing is missing'}", flush=True)

    number = measure_study(action.name, action.out, only, action.images, report)
    print(f"{number} measurements; the table of {action.name} is up to date")
    arguments = [repr(action.name), repr(str(action.out))]
    arguments += [] if only is None else [f"only={only!r}"]
    arguments += [] if action.images is None else [f"images={action.images}"]
    print()
    print_python("import attnlab", f"attnlab.study.measure_study({', '.join(arguments)})")


def _print_table(made: StudyTable) -> None:
    from attnlab.study.show import all_cells, footnotes

    screen = console()
    for group in made.groups:
        title: str | None = f"\n{made.title}: {group.name}"
        for cells in all_cells(made, group):
            screen.print(_table(*cells, title))
            title = None
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
