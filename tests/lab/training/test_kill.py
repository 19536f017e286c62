"""Kill a run at random moments; what it ends with is what an untouched run ends with, to the bit.

`ATTNLAB_KILLS=20 pytest tests/lab/training/test_kill.py` kills more often.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.lab.training.small import run, small, train_listening, weights

from attnlab.data import load_data
from attnlab.lab.training import RunConfig
from attnlab.lab.training.stopping import terminating
from attnlab.results import StoredRun

KILLS = int(os.environ.get("ATTNLAB_KILLS", "3"))
ROUNDS = 3 + 4 * KILLS


def started(config: RunConfig, folder: Path) -> BaseProcess:
    """The run in a process of its own, forked from a server that has done nothing but import."""
    context = get_context("forkserver")
    context.set_forkserver_preload(
        ["attnlab.lab.training.loop", "lightning_fabric", "sklearn.datasets"]
    )
    process = context.Process(target=train_listening, args=(config, folder))
    process.start()
    return process


def wait(process: BaseProcess, folder: Path, kind: int, moments: random.Random) -> None:
    """Until the moment to kill: while it starts, within a later epoch, or within a write.

    No wait lasts longer than three epochs: a fast machine trains all of them within a second, and
    a run that has ended cannot be killed.
    """
    before = epochs_done(folder)
    soon, late = (lambda: epochs_done(folder) > before), (lambda: epochs_done(folder) > before + 2)
    if kind == 0:
        until(process, soon, moments.uniform(0, 1.0))
        return
    until(process, soon)
    if kind == 1:
        until(process, late, moments.uniform(0, 0.3))
        return
    checkpoints = folder / "checkpoints"
    until(process, lambda: late() or any(n.startswith(".") for n in os.listdir(checkpoints)))


def until(process: BaseProcess, reached: Callable[[], bool], seconds: float = float("inf")) -> None:
    """Wait until something is reached, the process has ended or the seconds are over."""
    end = time.monotonic() + seconds
    while process.is_alive() and not reached() and time.monotonic() < end:
        time.sleep(0.0005)


def images(folder: Path) -> RunConfig:
    """Images in epochs, with what else a run keeps: averaged weights."""
    del folder
    return small(ROUNDS, attention="se", recipe={"ema": 0.9, "clip": 1.0})


def text(folder: Path) -> RunConfig:
    """A language model in steps, saved after every tenth, which is in the middle of an epoch."""
    (folder / "text.txt").write_text("The quick brown fox jumps over the lazy dog. " * 60)
    settings: dict[str, Any] = {
        "task": "language",
        "data": {"name": "text", "root": str(folder / "text.txt"), "options": {"context": 16}},
        "backbone": "decoder",
        "backbone_options": {"width": 32, "depth": 4, "heads": 2, "context": 16},
        "attention": "head",
        "recipe": {"name": "language", "steps": 10 * ROUNDS, "interval": 10, "warmup_steps": 4},
    }
    config = RunConfig(**settings)
    windows, batch_size = load_data(config.data).facts.train, 8
    assert -(-windows // batch_size) % 10, "every save would be at the end of an epoch"
    return config


@pytest.mark.parametrize("made", [images, text])
def test_killed_at_random_moments_it_ends_the_same(
    made: Callable[[Path], RunConfig], tmp_path: Path
) -> None:
    config = made(tmp_path)
    run(config, tmp_path / "whole")
    folder = tmp_path / "killed"
    moments = random.Random(0)
    killed: list[int] = []
    deadline = time.monotonic() + 600
    began = time.monotonic()
    while not (folder / "result.json").exists():
        assert time.monotonic() < deadline, f"not finished after {len(killed)} kills"
        process = started(config, folder)
        if len(killed) < KILLS:
            wait(process, folder, len(killed) % 3, moments)
            process.kill()
        process.join()
        if process.exitcode == -signal.SIGKILL:
            killed.append(epochs_done(folder))
        else:
            assert process.exitcode == 0
    print(f"{len(killed)} kills after epochs {killed}, {time.monotonic() - began:.0f} s")
    assert len(killed) == KILLS
    _assert_same(tmp_path / "whole", folder)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 1)]
)
def test_asked_to_stop_it_stops_and_goes_on(number: int, code: int, tmp_path: Path) -> None:
    config = small(4)
    process = started(config, tmp_path / "stopped")
    while epochs_done(tmp_path / "stopped") < 1 and process.is_alive():
        time.sleep(0.01)
    assert process.pid is not None
    os.kill(process.pid, number)
    process.join(60)
    assert process.exitcode == code
    assert 1 <= epochs_done(tmp_path / "stopped") < 4
    assert not list((tmp_path / "stopped").rglob(".*.partial"))
    run(config, tmp_path / "whole")
    run(config, tmp_path / "stopped")
    _assert_same(tmp_path / "whole", tmp_path / "stopped")


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    term = signal.getsignal(signal.SIGTERM)
    try:
        with terminating():
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) != term
        assert signal.getsignal(signal.SIGTERM) == term
    finally:
        signal.signal(signal.SIGHUP, before)


def epochs_done(folder: Path) -> int:
    metrics = folder / "metrics.jsonl"
    return len(metrics.read_text().splitlines()) if metrics.exists() else 0


def _assert_same(one: Path, other: Path) -> None:
    a, b = weights(one), weights(other)
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    first, second = StoredRun(one).result, StoredRun(other).result
    assert (first.values, first.best_epoch) == (second.values, second.best_epoch)
    for name in ("train_loss", "test", "lr"):
        records = [
            [json.loads(line)[name] for line in (f / "metrics.jsonl").read_text().splitlines()]
            for f in (one, other)
        ]
        assert records[0] == records[1]
