"""How far each run of a study is, read from disk, so that anybody may look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from attnlab.lab.study.store import State, Store
from attnlab.results import StoredRun
from attnlab.results.epoch import Budget
from attnlab.results.study import RunEntry

_LAST = 3
"""Epochs of which the time of the next ones is taken."""


@dataclass(frozen=True)
class RunProgress:
    """One run."""

    entry: RunEntry
    state: State
    done: int = 0
    """Epochs that are done; steps for a budget in steps."""
    whole: int | None = None
    """Of the recipe; None before it has begun."""
    unit: str = "epoch"
    """What `done` and `whole` count: `epoch` or `step`."""
    loss: float | None = None
    """Of training, between the last two tests that are done."""
    value: float | None = None
    """The result's metric after it, as it is stored."""
    seconds_left: float | None = None
    """Of training; None before the first test."""
    seconds: float | None = None
    """That all of it took, or will take."""


def run_progress(store: Store, entry: RunEntry, state: State, metric: str) -> RunProgress:
    """Return what the files of a run say of it."""
    run = store.run(entry)
    budget = run.config.recipe.budget
    if run.is_digested:
        return _finished_progress(entry, run, budget)
    history = run.history
    if not history:
        return RunProgress(entry, state, 0, budget.whole, budget.unit)
    last, rounds = history[-1], budget.epochs
    each = fmean(record.seconds for record in history[-_LAST:])
    left = None if rounds is None or state == "done" else each * max(0, rounds - len(history))
    return RunProgress(
        entry,
        state,
        budget.after(len(history)),
        budget.whole,
        budget.unit,
        last.train_loss,
        last.test.get(metric),
        left,
        None if rounds is None else each * rounds,
    )


def _finished_progress(entry: RunEntry, run: StoredRun, budget: Budget) -> RunProgress:
    curve, rounds = run.curve, budget.epochs
    taken = None if rounds is None or not curve.seconds else fmean(curve.seconds) * rounds
    loss = curve.losses[-1] if curve.losses else None
    value = curve.values[-1] if curve.values else None
    done = budget.after(len(curve.values))
    return RunProgress(entry, "done", done, budget.whole, budget.unit, loss, value, None, taken)


def seconds_left(runs: Sequence[RunProgress], slots: int) -> float | None:
    """Until all are done, `slots` at a time, if the others take as long as these; None where
    nothing is known yet."""
    known = [run.seconds for run in runs if run.seconds is not None]
    open_ = [run for run in runs if run.state != "done"]
    if not open_:
        return 0.0
    if not known:
        return None
    usual = fmean(known)
    left = [usual if run.seconds_left is None else run.seconds_left for run in open_]
    return max(sum(left) / max(1, min(slots, len(left))), max(left))
