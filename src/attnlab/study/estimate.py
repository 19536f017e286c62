"""How long a run will take: from finished runs like it, or from one measured training step."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import nn

from attnlab._errors import AttnlabError
from attnlab.study.grid import Cell, PlannedRun
from attnlab.study.store import State, Store
from attnlab.train.config import RunConfig
from attnlab.train.network import build_network
from attnlab.train.sources import load_data

Basis = Literal["finished runs", "measured step", "step of the plain backbone", "none"]

_LARGEST_BATCH = 16
_BUDGET = 20.0
"""Seconds of measuring, after which rows are taken to be as fast as their plain backbone."""
_FORWARD_SHARE = 1 / 3
"""Of a training step's work that a test image needs."""


class Size(NamedTuple):
    train: int
    test: int
    classes: int
    shape: tuple[int, int, int]


_KNOWN = {
    "cifar10": Size(50_000, 10_000, 10, (3, 32, 32)),
    "cifar100": Size(50_000, 10_000, 100, (3, 32, 32)),
    "stl10": Size(5_000, 8_000, 10, (3, 96, 96)),
}


@dataclass(frozen=True)
class Estimate:
    """Of one run of a cell, on this machine."""

    seconds: float | None
    basis: Basis
    problem: str = ""
    """Why there is none."""


@dataclass(frozen=True)
class Plan:
    """The runs of a study, what became of them so far, and what is left to do."""

    runs: tuple[PlannedRun, ...]
    states: dict[str, State]
    """By run id."""
    estimates: dict[Cell, Estimate]

    @property
    def left(self) -> list[PlannedRun]:
        return [run for run in self.runs if self.states[run.run_id] != "done"]

    @property
    def seconds_left(self) -> float | None:
        """One run after the other; None where some cell has no estimate."""
        each = [self.estimates[run.cell].seconds for run in self.left]
        return None if None in each else sum(seconds for seconds in each if seconds is not None)


def plan_study(runs: Sequence[PlannedRun], out: str | Path, budget: float = _BUDGET) -> Plan:
    """What is done and what is left; measures steps for about `budget` seconds."""
    store = Store(Path(out))
    states = {run.run_id: store.state(run.run_id) for run in runs}
    configs = {run.cell: run.config for run in reversed(runs)}
    end = time.perf_counter() + budget
    plain: dict[str, float] = {}
    estimates: dict[Cell, Estimate] = {}
    order = list(dict.fromkeys(run.cell for run in runs))
    for cell in sorted(order, key=lambda cell: not cell.plain):
        finished = [run for run in runs if run.cell == cell and states[run.run_id] == "done"]
        if finished:
            seconds = [result.seconds for _, result in store.results(finished)]
            estimates[cell] = Estimate(sum(seconds) / len(seconds), "finished runs")
        else:
            estimates[cell] = _measured(cell, configs[cell], plain, end)
    return Plan(tuple(runs), states, {cell: estimates[cell] for cell in order})


def _measured(cell: Cell, config: RunConfig, plain: dict[str, float], end: float) -> Estimate:
    """`plain` holds the seconds per image of the plain backbones, by group."""
    try:
        size = size_of(config)
        images = config.recipe.epochs * (size.train + _FORWARD_SHARE * size.test)
        if cell.group in plain and time.perf_counter() > end:
            return Estimate(plain[cell.group] * images, "step of the plain backbone")
        each = seconds_per_image(config, size)
    except AttnlabError as error:
        return Estimate(None, "none", str(error))
    plain.setdefault(cell.group, each)
    return Estimate(each * images, "measured step")


def size_of(config: RunConfig) -> Size:
    """How many images of what shape; the well-known data sets need not be there."""
    data = config.data
    if data.name not in _KNOWN:
        facts = load_data(data, config.recipe).facts
        return Size(facts.train, facts.test, facts.classes, facts.shape)
    known = _KNOWN[data.name]
    side = data.size or (data.stl_crop if data.name == "stl10" else known.shape[1])
    return Size(
        data.train_subset or known.train,
        data.test_subset or known.test,
        known.classes,
        (3, side, side),
    )


def seconds_per_image(config: RunConfig, size: Size) -> float:
    """Of a training step on random images; the second of two steps, since the first allocates."""
    batch = min(config.recipe.batch_size, _LARGEST_BATCH)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network = build_network(config, size.classes, size.shape).to(device).train()
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-6, momentum=0.9)
    images = torch.randn(batch, *size.shape, device=device)
    labels = torch.arange(batch, device=device) % size.classes
    for _ in range(2):
        began = time.perf_counter()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(images), labels)
        loss.backward()
        optimizer.step()
        loss.item()  # waits for the device
        taken = time.perf_counter() - began
    return taken / batch
