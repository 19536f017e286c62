"""`attnlab study run`: finish what is not finished."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from attnlab._words import counted
from attnlab.cli._study_progress import saved, showing
from attnlab.cli._study_shared import (
    Name,
    asked_study,
    print_answer,
    print_study_python,
    print_table,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnlab.lab.study import Executor, Study
    from attnlab.lab.study.status import StudyStatus
    from attnlab.lab.study.worker import Outcome

_ENDED = {129: "SIGHUP", 138: "SIGUSR1", 140: "SIGUSR2", 143: "SIGTERM"}
"""By the exit code, 128 and the signal's number, as a shell writes it."""


@dataclass(frozen=True)
class RunStudy:
    """Finish every run that is not finished. The same again resumes; several may do it at once.

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
    out: str = "runs"
    """Where the runs are: a folder that all machines share, or an address, s3://bucket/runs."""
    import_from: tuple[Path, ...] = ()
    """Folders with your own classes that the study names, as in "my_gates.MyGate"."""
    until_decided: bool = False
    """Add seeds until every module is better or worse than the plain backbone."""
    max_seeds: int | None = None
    """--until-decided: stop at this many seeds; 30 if left out."""
    on: Literal["local", "ray", "slurm"] = "local"
    """This machine, a Ray cluster, or Slurm."""
    slots: int | None = None
    """local: runs at a time. One per GPU, or per core if there is none, if left out."""
    threads: int | None = None
    """Per process. They decide the bits of the weights, so runs with others are other runs. Those
    of the study's file if left out, else OMP_NUM_THREADS, else those of its last plan, else the
    cores divided among the slots; on ray and slurm --cpus."""
    cpus: int = 1
    """ray, slurm: per run; for each of its devices if it has several."""
    gpus: int = 0
    """ray, slurm: likewise."""
    address: str | None = None
    """ray: of the cluster; RAY_ADDRESS, or this machine, if left out."""
    options: Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="KEY=VALUE")] = ()
    """slurm: parameters of submitit."""


def run_command(action: RunStudy) -> None:
    """Run, print the table, write the page."""
    from attnlab.lab.study import run_study, run_until_decided, show_study, study_status
    from attnlab.lab.training.stopping import terminating

    _check(action)
    found, executor = _with_executor(action, asked_study(action))
    status = study_status(found, action.out)
    done = sum(run.state == "done" for run in status.runs)
    slots = executor.at_a_time or 1
    try:
        _say_what(found, executor, action.out, status)
        # So that the runs are stopped as well.
        with terminating(), showing(found, action.out, slots, done) as report:
            if action.until_decided:
                most = action.max_seeds or 30
                outcomes = run_until_decided(found, action.out, executor, report, most_seeds=most)
            else:
                outcomes = run_study(found, action.out, executor, report)
        made = show_study(found, action.out)
        print_table(made)
        _write_report(action, found.name)
        _print_python(action)
        print_answer(made)
        failed = [outcome for outcome in outcomes if outcome.status == "failed"]
        _print_failed(failed)
        sys.stdout.flush()  # here, where it can be told what was saved
    except KeyboardInterrupt:
        _say_stopped(found, action.out, "by Ctrl-C")
        raise SystemExit(130) from None
    except BrokenPipeError:
        _say_stopped(found, action.out, "because nobody reads its output any more")
        raise
    except SystemExit as ended:
        if ended.code in _ENDED:
            _say_stopped(found, action.out, f"by {_ENDED[ended.code]}")
        raise
    if failed:
        raise SystemExit(1)


def _check(action: RunStudy) -> None:
    """Refuse what cannot run before anything does."""
    from attnlab._checked import check_whole
    from attnlab._errors import OptionError
    from attnlab._extras import check_extra

    # For the runs, the table and the page: what is missing is told now and not in each run.
    check_extra("study", *(["lightning_fabric"] if action.on == "local" else []))
    check_extra("study", "scipy", "vl_convert")
    if action.max_seeds is not None and not action.until_decided:
        raise OptionError("--max-seeds is for --until-decided.")
    if action.max_seeds is not None:
        check_whole("--max-seeds", action.max_seeds, 1)
    if action.threads is not None:
        check_whole("--threads", action.threads, 1)
    for name, value, least in (("cpus", action.cpus, 1), ("gpus", action.gpus, 0)):
        check_whole(f"--{name}", value, least)


def _print_python(action: RunStudy) -> None:
    study = "study" if action.threads is None else f"study.with_threads({action.threads})"
    call = f"run_until_decided({study}, {action.out!r}, most_seeds={action.max_seeds or 30})"
    if not action.until_decided:
        call = f"run_study({study}, {action.out!r})"
    print_study_python(action, f"attnlab.lab.study.{call}")


def _print_failed(failed: Sequence[Outcome]) -> None:
    if failed:
        runs = counted(len(failed), "run")
        print(f"\n{runs} failed; log.txt and failure.json of each say why:")
        for outcome in failed:
            print(f"  {outcome.job.directory}")


def _say_stopped(found: Study, out: str, how: str) -> None:
    """Print to standard error, which is there when nobody reads the rest."""
    from attnlab.lab.study import study_status

    status = study_status(found, out)
    print(
        f"stopped {how}: {saved(status)} in {out}. The same command resumes from there.",
        file=sys.stderr,
    )


def _write_report(action: RunStudy, name: str) -> None:
    import attnlab
    from attnlab.lab.study import Store

    store = Store.at(action.out)
    page = attnlab.report(action.out, store.study_directory(name) / "report.html", name)
    shown = f"{store.shown}/studies/{name}/report.html"
    if store.mirror is not None:
        store.mirror.put_pages(name)
        shown = f"{page} and {shown}"
    print(f"wrote {shown}")


def _with_executor(action: RunStudy, found: Study) -> tuple[Study, Executor]:
    """The study with the threads that its runs will have, and what works on it."""
    from attnlab.lab.study import Store
    from attnlab.lab.study.run import with_threads_of

    found = found if action.threads is None else found.with_threads(action.threads)
    executor = _executor(action, found.devices)
    return with_threads_of(found, Store.at(action.out), executor), executor


def _say_what(found: Study, executor: Executor, out: str, status: StudyStatus) -> None:
    """What is going to run, on what, and where its results are."""
    print(f"{found.title or found.name}: {counted(len(status.runs), 'run')}, {status}")
    threads = counted(found.threads or executor.threads, "thread")
    print(f"on {executor.describe()}, {threads} each; results in {out}", flush=True)
    _say_other_threads(found, out, status)


def _say_other_threads(found: Study, out: str, status: StudyStatus) -> None:
    """A run with other threads is another run, so what looks finished may be trained again."""
    from attnlab.lab.study import Store
    from attnlab.lab.study.history import runs_with_other_threads

    store = Store.at(out)
    others = runs_with_other_threads(store, [run.entry for run in status.runs])
    for threads, number in sorted(others.items()):
        are, do, them = ("is", "does", "it") if number == 1 else ("are", "do", "them")
        print(
            f"{counted(number, 'run')} {are} there with {counted(threads, 'thread')} per process, "
            f"and {do} not count for {found.threads}: threads decide the bits of the weights. "
            f"--threads {threads} goes on with {them}.",
            flush=True,
        )


def _executor(action: RunStudy, devices: int) -> Executor:
    from attnlab._errors import OptionError
    from attnlab.lab.study import LocalExecutor, RayExecutor, SlurmExecutor

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
        from attnlab._address import is_address, local_path
        from attnlab.cli.insert import key_value

        parameters = dict(key_value(text) for text in action.options)
        # What submitit itself writes needs a folder that the nodes share, wherever the results are.
        folder = Path("runs") if is_address(action.out) else local_path(action.out)
        return SlurmExecutor(folder / "slurm", action.cpus, action.gpus, parameters)
    return LocalExecutor(action.slots, devices=devices)
