"""How long a run will take: from finished runs like it, or from one measured training step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from attnlab._errors import AttnlabError
from attnlab.data import Batch, Facts, load_data
from attnlab.data.batches import Chunk
from attnlab.data.known import CIFAR, SETS
from attnlab.lab.study.cost import StepTable, StudyCost, TimeSpan, cost_of
from attnlab.lab.study.definition import Study
from attnlab.lab.study.grid import PlannedRun, check_names, planned_runs
from attnlab.lab.study.plan import extended
from attnlab.lab.study.store import State, Store
from attnlab.lab.training.config import RunConfig
from attnlab.lab.training.placement import stand_in_config
from attnlab.lab.training.surroundings import deterministically
from attnlab.results.study import RunEntry, StudyCell
from attnlab.subject.building import build_network
from attnlab.tasks import Task, build_task
from attnlab.tasks.elsewhere import TaskTrainedElsewhere

Basis = Literal["finished runs", "measured step", "step on other data", "table", "none"]

_LARGEST_BATCH = 4
"""A plan is to be there within seconds. On a CPU the time of an image hardly depends on the batch
from a few images on; on a GPU a plan is too long rather than too short."""
_TIMED = 3
"""Steps whose least and most are told."""
_FORWARD_SHARE = 1 / 3
"""The share of a training step's work that a test image needs."""


@dataclass(frozen=True)
class Estimate:
    """What one run of a cell takes on this machine."""

    seconds: float | None
    basis: Basis
    problem: str = ""
    """Why there is none."""
    notes: tuple[str, ...] = ()
    """What was noticed of the data."""
    span: TimeSpan | None = None
    """The seconds, with the least and the most that what they are taken from was seen to be."""
    step: TimeSpan | None = None
    """Seconds of training per image, where a step was timed."""


@dataclass(frozen=True)
class PlannedStudy:
    """The runs of a study, what became of them so far, and what is left to do."""

    runs: tuple[PlannedRun, ...]
    states: tuple[State, ...]
    """The states of the runs, in their order."""
    estimates: dict[StudyCell, Estimate]
    problem: str = ""
    """Why it is not known which runs are done."""

    @property
    def left(self) -> list[PlannedRun]:
        pairs = zip(self.runs, self.states, strict=True)
        return [run for run, state in pairs if state != "done"]

    @property
    def seconds_left(self) -> float | None:
        """One run after the other; None where some cell has no estimate."""
        each = [self.estimates[run.cell].seconds for run in self.left]
        return None if None in each else sum(seconds for seconds in each if seconds is not None)

    def cost(self, devices: int, price: float | None = None) -> StudyCost | None:
        """Return what the runs that are left cost, one per device; None if some cell has no
        estimate."""
        spans = [self.estimates[run.cell].span for run in self.left]
        known = [span for span in spans if span is not None]
        return cost_of(known, devices, price) if len(known) == len(spans) else None


def plan_study(
    study: Study,
    out: str | Path,
    report: Callable[[str], None] | None = None,
    *,
    steps: StepTable | None = None,
) -> PlannedStudy:
    """Say what is done and what is left. Of every row that has no finished run, steps of its own
    network are timed, `report` is told which, before; or taken from a table of another device, for
    which runs that finished here say nothing."""
    store = Store.at(out)
    runs = planned_runs(extended(store, study))
    estimates: dict[StudyCell, Estimate] = {}
    try:
        entries: dict[tuple[StudyCell, int], RunEntry] = {
            (entry.cell, entry.seed): entry for entry in store.entries(runs)
        }
        problem = ""
    except AttnlabError as error:  # the data are not here, so their runs cannot be named
        entries, problem = {}, str(error)
    states: list[State] = [
        store.state(entries[run.cell, run.seed]) if entries else "waiting" for run in runs
    ]
    timed, wrong = _Steps(report or (lambda _: None), steps), _wrong_name(runs)
    order = list(dict.fromkeys(run.cell for run in runs))
    for cell in sorted(order, key=lambda cell: not cell.plain):
        own = [(run, state) for run, state in zip(runs, states, strict=True) if run.cell == cell]
        finished = [entries[cell, run.seed] for run, state in own if state == "done"]
        if finished and steps is None:
            seconds = [store.run(entry).result.seconds for entry in finished]
            mean, span = sum(seconds) / len(seconds), TimeSpan.of(seconds)
            estimates[cell] = Estimate(mean, "finished runs", span=span)
        elif wrong:  # before any step is timed: the study cannot be run
            estimates[cell] = Estimate(None, "none", wrong)
        else:
            estimates[cell] = timed.estimate(own[0][0])
    estimates = {cell: estimates[cell] for cell in order}
    return PlannedStudy(tuple(runs), tuple(states), estimates, problem)


def _wrong_name(runs: Sequence[PlannedRun]) -> str:
    """Which network, gate or option does not exist; empty if all do."""
    try:
        check_names(runs)
    except AttnlabError as error:
        return str(error)
    return ""


class _Steps:
    """Timed steps. A row that is there for several data sets is timed on the first; on the others
    its time changes as that of the first row of them does, the plain backbone."""

    def __init__(self, report: Callable[[str], None], table: StepTable | None) -> None:
        self._report, self._table = report, table
        self._first: dict[StudyCell, TimeSpan] = {}
        """Seconds per image of the first row of every group."""
        self._rows: dict[tuple[str, str], tuple[StudyCell, TimeSpan]] = {}
        """By backbone and row: where it was timed, and its seconds per image there."""

    def estimate(self, run: PlannedRun) -> Estimate:
        """How long a run of its cell takes, with the threads that a run has."""
        config = run.config
        try:
            train, test, notes = self._images(run.cell, config)
            with deterministically(run.threads):
                each, basis = self._seconds(run.cell, config)
        except AttnlabError as error:
            return Estimate(None, "none", str(error))
        recipe = config.recipe
        # The first run of a seed makes the network that all its runs start from.
        before = config.pretrain if run.cell.plain else None
        images = sum(
            each_recipe.seen(train) + each_recipe.epochs * _FORWARD_SHARE * test
            for each_recipe in (recipe, before)
            if each_recipe is not None
        )
        span = each.by(images)
        return Estimate(span.middle, basis, notes=notes, span=span, step=each)

    def _images(self, cell: StudyCell, config: RunConfig) -> tuple[int, int, tuple[str, ...]]:
        """How many to train and to test with, and what was noticed of them."""
        if self._table is not None and cell.data in self._table.images:
            return *self._table.images[cell.data], ()
        facts = facts_of(config)
        return facts.train, facts.test, facts.notes

    def _seconds(self, cell: StudyCell, config: RunConfig) -> tuple[TimeSpan, Basis]:
        if self._table is not None:
            return self._table.step(cell.backbone, cell.row), "table"
        place, first = replace(cell, row="", plain=False), self._first
        known = self._rows.get((cell.backbone, cell.row))
        if place in first and known is not None and known[0] in first:
            ratio = first[place].middle / first[known[0]].middle
            return known[1].by(ratio), "step on other data"
        self._report(f"timing a step of {cell.group} {cell.row}")
        each = seconds_per_image(config, facts_of(config))
        first.setdefault(place, each)
        self._rows.setdefault((cell.backbone, cell.row), (place, each))
        return each, "measured step"


def facts_of(config: RunConfig) -> Facts:
    """Return how many images of what shape; the well-known data sets need not be there."""
    data = config.data
    if data.name not in SETS:
        return load_data(data).facts
    known = SETS[data.name]
    side = data.size or (data.stl_crop if data.name == "stl10" else known.side)
    counts = data.train_subset or known.train, data.test_subset or known.test
    return Facts(data.name, "class", known.classes, (3, side, side), *counts, *CIFAR, "")


def seconds_per_image(config: RunConfig, facts: Facts) -> TimeSpan:
    """Time training steps, all but the first, which allocates."""
    batch = min(config.recipe.batch_size, _LARGEST_BATCH)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    task = build_task(config.task, facts)
    network = build_network(stand_in_config(config), task).to(device).train()
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-6, momentum=0.9)
    given = _batch(config, task, facts, batch, device)
    taken = []
    for _ in range(1 + _TIMED):
        began = time.perf_counter()
        optimizer.zero_grad()
        loss = task.loss(network, given).mean
        loss.backward()
        optimizer.step()
        loss.item()  # waits for the device
        taken.append((time.perf_counter() - began) / batch)
    return TimeSpan.of(taken[1:])


def _batch(config: RunConfig, task: Task, facts: Facts, batch: int, device: torch.device) -> Batch:
    """Random images, which need no data; the first ones if there are boxes or masks, because how
    long a step takes depends on them."""
    if facts.targets in ("boxes", "masks") or isinstance(task, TaskTrainedElsewhere):
        data = task.prepared(load_data(config.data))
        first = Chunk(torch.arange(min(batch, facts.train)), 1.0)
        return next(data.training([first], 0, 0, device))
    if facts.targets == "tokens":
        tokens = facts.example(batch).to(device)
        return Batch(tokens, tokens)
    return Batch(torch.randn(batch, *facts.shape, device=device), _targets(facts, batch, device))


def _targets(facts: Facts, batch: int, device: torch.device) -> Tensor:
    if facts.targets == "class":
        return torch.arange(batch, device=device) % facts.outputs
    return torch.zeros(batch, facts.outputs, device=device)
