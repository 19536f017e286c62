"""What is shown while a run trains: a bar on a terminal, one line per epoch elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Protocol

from attnlab.results.epoch import Budget, EpochRecord
from attnlab.results.metric import Metric

Progress = Callable[[EpochRecord], None]


class Reporter(Protocol):
    """Told of every step and epoch."""

    def note(self, text: str) -> None: ...
    def step(self, epoch: int, done: int, steps: int) -> None: ...
    def epoch(self, record: EpochRecord) -> None: ...
    def close(self) -> None: ...


def reporter(progress: Progress | None, label: str, budget: Budget, metric: Metric) -> Reporter:
    """The caller's function if there is one, else what suits the output."""
    if progress is not None:
        return CallReporter(progress)
    return (BarReporter if sys.stderr.isatty() else LineReporter)(label, budget, metric)


class CallReporter:
    """Hands each epoch's record to a function."""

    def __init__(self, function: Progress) -> None:
        self.function = function

    def note(self, text: str) -> None:
        pass

    def step(self, epoch: int, done: int, steps: int) -> None:
        pass

    def epoch(self, record: EpochRecord) -> None:
        self.function(record)

    def close(self) -> None:
        pass


class LineReporter:
    """A reporter that prints one line per epoch."""

    def __init__(self, label: str, budget: Budget, metric: Metric) -> None:
        self.label, self.budget, self.metric = label, budget, metric

    def note(self, text: str) -> None:
        print(text, flush=True)

    def step(self, epoch: int, done: int, steps: int) -> None:
        pass

    def epoch(self, record: EpochRecord) -> None:
        print(epoch_line(self.label, record, self.budget, self.metric), flush=True)

    def close(self) -> None:
        pass


class BarReporter:
    """A bar of steps, with the last epoch's line beside it."""

    def __init__(self, label: str, budget: Budget, metric: Metric) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self.label, self.budget, self.metric = label, budget, metric
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        self.progress = Progress(*columns, console=Console(stderr=True))
        self.task = self.progress.add_task(label, total=None)
        self.progress.start()

    def note(self, text: str) -> None:
        self.progress.console.print(text, markup=False, highlight=False)

    def step(self, epoch: int, done: int, steps: int) -> None:
        rounds = self.budget.epochs
        total = None if rounds is None else rounds * steps
        self.progress.update(self.task, completed=epoch * steps + done, total=total)

    def epoch(self, record: EpochRecord) -> None:
        self.progress.update(
            self.task, description=epoch_line(self.label, record, self.budget, self.metric)
        )

    def close(self) -> None:
        self.progress.stop()


def epoch_line(label: str, record: EpochRecord, budget: Budget, metric: Metric) -> str:
    """`digits resnet20 se seed 0 · epoch 3/12 · lr 0.05 · loss 0.213 · … · 1520 images/s`."""
    value = record.test[metric.name]
    assert value is not None
    assert record.train_loss is not None
    parts = " + ".join(f"{name} {part:.3f}" for name, part in record.loss_parts.items())
    loss = f"loss {record.train_loss:.3f}{' = ' * bool(parts)}{parts}"
    done = f"{budget.unit} {budget.after(record.epoch)}/{budget.whole}"
    return (
        f"{label} · {done} · lr {record.lr:.3g} · {loss} · "
        f"{metric.label} {metric.text(value)} · {record.images_per_second:.0f} {metric.samples}/s"
    )
