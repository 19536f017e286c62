"""What is shown while training."""

from __future__ import annotations

from typing import Any

import pytest

from attnlab.lab.training.reporters import (
    BarReporter,
    CallReporter,
    LineReporter,
    epoch_line,
    reporter,
)
from attnlab.results import Metric
from attnlab.results.epoch import Budget, EpochRecord

TOP1 = Metric(name="top1", label="top-1", unit="%", scale=100)
RECORD = EpochRecord(
    epoch=3, lr=0.05, train_loss=0.21345, test={"top1": 0.9642}, images_per_second=1520.4
)


def test_the_line() -> None:
    assert epoch_line("digits resnet20 se seed 0", RECORD, Budget(12), TOP1) == (
        "digits resnet20 se seed 0 · epoch 3/12 · lr 0.05 · loss 0.213 · top-1 96.42 % · "
        "1520 images/s"
    )


def test_the_line_of_a_budget_in_steps() -> None:
    """The last round is shorter: 250 steps are tested after 100, 200 and 250."""
    loss = Metric(name="loss", label="loss", better="lower", sample="window")
    record = RECORD.model_copy(update={"test": {"loss": 2.5}})
    assert epoch_line("stdlib decoder", record, Budget(3, 250, 100), loss) == (
        "stdlib decoder · step 250/250 · lr 0.05 · loss 0.213 · loss 2.50 · 1520 windows/s"
    )


def test_a_bar_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: False, raising=False)
    assert isinstance(reporter(None, "run", Budget(12), TOP1), LineReporter)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    bar = reporter(None, "run", Budget(12), TOP1)
    assert isinstance(bar, BarReporter)
    bar.step(2, 5, 10)
    assert (bar.progress.tasks[0].completed, bar.progress.tasks[0].total) == (25, 120)
    bar.epoch(RECORD)
    assert bar.progress.tasks[0].description == epoch_line("run", RECORD, Budget(12), TOP1)
    bar.close()


def test_a_function_is_given_the_records() -> None:
    seen: list[Any] = []
    told = reporter(seen.append, "run", Budget(12), TOP1)
    assert isinstance(told, CallReporter)
    told.step(0, 1, 2)
    told.epoch(RECORD)
    told.close()
    assert seen == [RECORD]


def test_what_a_budget_counts() -> None:
    epochs, steps = Budget(12), Budget(3, 250, 100)
    assert (epochs.unit, epochs.after(5), epochs.whole) == ("epoch", 5, 12)
    assert [steps.after(n) for n in (0, 1, 2, 3)] == [0, 100, 200, 250]
    assert (steps.unit, steps.whole) == ("step", 250)
    unknown = Budget()
    assert (unknown.unit, unknown.after(7), unknown.whole) == ("epoch", 7, None)


def test_the_numbers_of_a_record() -> None:
    """Those in tables have the name of the table in front; texts, truth values and what is not
    known are none."""
    record = RECORD.with_more(
        {"tns": 2, "nsi": {"layer1.0": 0.5}, "done": True, "where": "here", "gates": {"a": [1.0]}}
    )
    assert record.numbers() == {
        "lr": 0.05,
        "train_loss": 0.21345,
        "test/top1": 0.9642,
        "images_per_second": 1520.4,
        "tns": 2.0,
        "nsi/layer1.0": 0.5,
    }
    assert EpochRecord(epoch=1, lr=0.1, test={"r2": None}).numbers() == {"lr": 0.1}
