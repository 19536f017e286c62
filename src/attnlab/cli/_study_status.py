"""`attnlab study status`: how far it is."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab.cli._show import console, print_python
from attnlab.cli._study_progress import done_head, live, now, progress_summary, row_of
from attnlab.cli._study_shared import (
    Name,
    asked_study,
    print_study_python,
    say_as_planned,
    table_of,
)

if TYPE_CHECKING:
    from attnlab.lab.study import Study
    from attnlab.lab.study.status import StudyStatus

_LOOK = 2.0
"""Seconds between two looks at the files of the runs."""


@dataclass(frozen=True)
class ShowStatus:
    """How far a study is: done, running, failed, stopped, waiting; epochs, and the time left.

    Examples:
      attnlab study status demo
      attnlab study status demo --watch
      attnlab study status demo --as-planned
    """

    study: Name
    """A TOML file, or the name of one in studies/."""
    small: bool = False
    """The form of a paper's table that runs in minutes."""
    out: str = "runs"
    """Where the runs are: a folder or an address."""
    import_from: tuple[Path, ...] = ()
    """Folders with your own classes that the study names, as in "my_gates.MyGate"."""
    as_planned: bool = False
    """Show the last plan: faster, but changes of its file, data or classes are not seen."""
    watch: bool = False
    """Look again every two seconds until no run is left to be done; Ctrl-C ends it."""


def status_command(action: ShowStatus) -> None:
    """Print it, once or until nothing is left."""
    if action.as_planned:
        _as_planned(action)
        return
    from attnlab.lab.study import study_status

    found = asked_study(action)
    if action.watch:
        _watch(found, action.out)
    _print_status(study_status(found, action.out), found.title)
    print_study_python(action, f"print(attnlab.lab.study.study_status(study, {action.out!r}))")


def _as_planned(action: ShowStatus) -> None:
    from attnlab._errors import OptionError
    from attnlab.lab.study import planned_status
    from attnlab.lab.study.files import stored_name

    if action.watch:
        raise OptionError("--watch follows a study that runs, and --as-planned looks at it once.")
    name = stored_name(action.study, small=action.small)
    status = planned_status(name, action.out)
    say_as_planned(name, action.out)
    _print_status(status, name)
    arguments = f"{name!r}, {action.out!r}"
    print()
    print_python("import attnlab", f"print(attnlab.lab.study.planned_status({arguments}))")


def _print_status(status: StudyStatus, title: str) -> None:
    rows = []
    for run, progress in zip(status.runs, status.progress, strict=True):
        label, state, *figures = row_of(progress, status.metric)
        rows.append([label, state, *figures, run.entry.run_id, run.detail])
    heads = ["run", "state", done_head(status), "loss", status.metric.title, "left", "id", ""]
    console().print(table_of(heads, rows, title, text=(0, 1, 6, 7)))
    print(status)
    print(progress_summary(status))


def _watch(found: Study, out: str) -> None:
    """On a terminal a table that is drawn again; elsewhere a line whenever something changed."""
    from attnlab.lab.study import study_status

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
