"""What `attnlab study` shows while runs are worked on: a table that is drawn again on a terminal,
one line per run that ends elsewhere."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab._words import counted
from attnlab.cli._show import table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from attnlab.lab.study import Study
    from attnlab.lab.study.progress import RunProgress
    from attnlab.lab.study.status import StudyStatus
    from attnlab.lab.study.worker import Outcome
    from attnlab.results.metric import Metric

_SHOWN = 24
"""Runs that the table shows at most: those that are worked on first."""
_ORDER = {"running": 0, "failed": 1, "stopped": 2, "waiting": 3, "done": 4}


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


class OutcomeLines:
    """A line per run that ends."""

    def __init__(self, done: int) -> None:
        self.done = done
        self.waited_for: set[str] = set()

    def __call__(self, outcome: Outcome) -> None:
        line = self.line(outcome)
        if line:
            print(line, flush=True)

    def line(self, outcome: Outcome) -> str:
        """Empty if there is nothing new to say."""
        from attnlab.results import StoredRun

        job = outcome.job
        if outcome.status == "busy":
            known = job.run_id in self.waited_for
            self.waited_for.add(job.run_id)
            return "" if known else f"  {job.label}: {outcome.message} works on it; waiting"
        if outcome.status == "failed":
            return f"  {job.label}: FAILED: {outcome.message}"
        self.done += 1
        result = StoredRun(Path(job.directory)).result
        metric = result.metric
        return (
            f"  {self.done}  {job.label}: {metric.label} {metric.text(result.value)}, "
            f"{result.seconds:.0f} s"
        )


@contextmanager
def showing(study: Study, out: str, slots: int, done: int) -> Iterator[Callable[[Outcome], None]]:
    """Yield what to call with each outcome; on a terminal a table stands below its lines."""
    lines = OutcomeLines(done)
    if not sys.stdout.isatty():
        yield lines
        return
    # A run that is done has its line above, so it is not in the table as well.
    with live(lambda: now(study, out, slots, with_done=False)) as screen:

        def report(outcome: Outcome) -> None:
            line = lines.line(outcome)
            if line:
                screen(line)

        yield report


@contextmanager
def live(draw: Callable[[], RenderableType]) -> Iterator[Callable[[str], None]]:
    """What `draw` makes, again every two seconds; yield what prints a line above it."""
    from rich.live import Live

    from attnlab.cli._show import console

    with Live(
        get_renderable=draw, console=console(), refresh_per_second=0.5, transient=True
    ) as shown:
        yield shown.console.print


def now(study: Study, out: str, slots: int, *, with_done: bool = True) -> RenderableType:
    """The table of this moment."""
    from rich.text import Text

    from attnlab.lab.study import study_status

    try:
        return progress_table(study_status(study, out), slots, with_done=with_done)
    except OSError as error:  # a file that another process puts in place just now
        return Text(f"cannot look: {error}")


def progress_table(
    status: StudyStatus, slots: int | None = None, *, with_done: bool = True
) -> RenderableType:
    """Runs with epoch, loss, metric and time left, those that are worked on first."""
    from rich.console import Group
    from rich.text import Text

    shown = [run for run in status.progress if with_done or run.state != "done"]
    runs = sorted(shown, key=lambda run: _ORDER[run.state])
    rows = [row_of(run, status.metric) for run in runs[:_SHOWN]]
    heads = ["run", "state", done_head(status), "loss", status.metric.title, "left"]
    sides = ["left", "left", *["right"] * 4]
    made = table(list(zip(heads, sides, strict=True)), rows)  # type: ignore[arg-type]
    more = len(runs) - _SHOWN
    texts = [progress_summary(status, slots)] + ([f"… and {more} more"] if more > 0 else [])
    return Group(made, *(Text(text) for text in texts))


def done_head(status: StudyStatus) -> str:
    """The head of the column that says how far a run is: `epoch`, or `step` if all count steps."""
    begun = {run.unit for run in status.progress if run.done} or {"epoch"}
    return begun.pop() if len(begun) == 1 else "done"


def row_of(run: RunProgress, metric: Metric) -> list[str]:
    done = "" if run.whole is None else f"{run.done}/{run.whole}"
    return [
        str(run.entry),
        run.state,
        done,
        "" if run.loss is None else f"{run.loss:.3f}",
        "" if run.value is None else metric.text(run.value).removesuffix(metric.unit).strip(),
        "" if run.seconds_left is None else duration(run.seconds_left),
    ]


def progress_summary(status: StudyStatus, slots: int | None = None) -> str:
    """`8 runs: 3 done, 2 running, 3 waiting; about 4 min left with 2 slots`."""
    from attnlab.lab.study.progress import seconds_left

    count = Counter(run.state for run in status.progress)
    states = ", ".join(f"{number} {state}" for state, number in sorted(count.items()))
    used = slots or max(1, count["running"])
    left = seconds_left(status.progress, used)
    text = f"{counted(len(status.progress), 'run')}: {states}"
    if left:
        text += f"; about {duration(left)} left with {counted(used, 'slot')}"
    return text


def saved(status: StudyStatus) -> str:
    """What a study that was stopped has on disk."""
    begun = [run for run in status.progress if run.state != "done" and run.done]
    done = sum(run.state == "done" for run in status.progress)
    text = f"{done} of {len(status.progress)} runs are done"
    if begun:
        shown: Sequence[str] = [f"{run.entry} {run.done}/{run.whole}" for run in begun[:4]]
        more = f" and {len(begun) - 4} more" if len(begun) > 4 else ""
        have = "has" if len(begun) == 1 else "have"
        text += f", {len(begun)} {have} {begun[0].unit}s saved ({', '.join(shown)}{more})"
    return text
