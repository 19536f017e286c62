"""Runs whose network another program trains: its epochs are checked, saved and written down as
those of our own loop are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from attnlab._errors import InputError, OptionError
from attnlab.data import Data
from attnlab.lab.training.config import RunConfig
from attnlab.lab.training.diagnose import NonFiniteLossError
from attnlab.lab.training.recipe import load_recipe
from attnlab.lab.training.reporters import Reporter
from attnlab.lab.training.state import State
from attnlab.lab.training.stopping import Stop
from attnlab.lab.training.surroundings import write_metrics
from attnlab.results.checkpoints import load_checkpoint, save_checkpoint
from attnlab.results.epoch import EpochRecord
from attnlab.tasks import task_class
from attnlab.tasks.elsewhere import Assignment, TaskTrainedElsewhere, TrainerState

FOLDER = "trainer"
"""The trainer's own, in the run's directory."""
_OURS = frozenset({"name", "epochs", "batch_size", "test_batch_size"})
"""What a recipe says to another program's trainer."""

EachEpoch = Callable[[nn.Module, TaskTrainedElsewhere, Data, torch.device], Mapping[str, object]]


def check_elsewhere(config: RunConfig, devices: int) -> None:
    """Refuse settings that another program's trainer would not see, so that none is ignored."""
    name = config.task.name
    if devices > 1:
        raise OptionError(
            f"Task {name!r} trains a run in one process but devices = {devices}. Leave it out; "
            f"several runs of a study train beside each other."
        )
    if config.pretrain is not None:
        raise OptionError(
            f"Task {name!r} trains by another program, which starts from no run of attnlab: leave "
            f"pretrain out, or give a file as option weights of the backbone."
        )
    found = task_class(config.task)
    assert issubclass(found, TaskTrainedElsewhere)
    expected = load_recipe(found.recipe).model_dump()
    given = config.recipe.model_dump()
    differ = [key for key, value in given.items() if value != expected[key] and key not in _OURS]
    if differ:
        raise OptionError(
            f"Task {name!r} trains by its program's own settings, and the recipe's {differ[0]} is "
            f"not one of them. Start from recipe = {{ name = {found.recipe!r}, epochs = 100, "
            f"batch_size = 16 }}, and give the program's settings as options of the task."
        )


def resumed(network: nn.Module, folder: Path, run_id: str) -> State:
    """The run where it stands: the network that was tested last, or as it was built."""
    state = State(network, network, None, None)
    content = load_checkpoint(folder / "checkpoints")
    if content is None:
        return state
    if content.get("run_id") != run_id:
        raise InputError(
            f"The checkpoints in {folder / 'checkpoints'} are of run {content.get('run_id')}, "
            f"expected {run_id}. Use another directory."
        )
    network.load_state_dict(content["network"])
    state.history = [EpochRecord(**record) for record in content["history"]]
    state.elsewhere = content["trainer"]
    return state


@dataclass(frozen=True)
class ElsewhereRun:
    """One run, and who is told of its epochs."""

    folder: Path
    run_id: str
    config: RunConfig
    threads: int
    each_epoch: EachEpoch | None
    stop: Stop
    show: Reporter
    written: Callable[[], None]
    """Called when an epoch is saved."""


def train_elsewhere(
    run: ElsewhereRun, task: TaskTrainedElsewhere, state: State, data: Data, device: torch.device
) -> None:
    """Have the task train what is left of a run."""
    recipe = run.config.recipe

    def ended(record: EpochRecord, network: nn.Module, trainer: TrainerState) -> None:
        _check(record, task, data)
        if record.epoch != len(state.history) + 1:
            raise AssertionError(f"epoch {record.epoch} was reported after {len(state.history)}")
        state.network.load_state_dict(network.state_dict())
        if run.each_epoch is not None:
            record = record.with_more(run.each_epoch(state.network.eval(), task, data, device))
        with run.stop.deferred():
            state.history.append(record)
            content = {
                "run_id": run.run_id,
                "network": state.network.state_dict(),
                "history": [each.given() for each in state.history],
                "trainer": dict(trainer),
            }
            save_checkpoint(run.folder / "checkpoints", len(state.history), content)
            write_metrics(run.folder, state.history)
            run.written()
        if run.stop.asked:
            run.stop.obey()
        run.show.epoch(record)

    if len(state.history) == recipe.epochs:
        return
    task.train(
        state.network,
        data,
        Assignment(
            (run.folder / FOLDER).resolve(),
            recipe.epochs,
            recipe.batch_size,
            run.config.seed,
            run.threads,
            len(state.history),
            state.elsewhere,
            run.show.note,
            run.show.step,
            ended,
        ),
    )
    if len(state.history) != recipe.epochs:
        raise InputError(
            f"{run.config.label}: the trainer ended after {len(state.history)} of {recipe.epochs} "
            f"epochs. Runs of a study have equal budgets: leave settings out that end it early."
        )


def _check(record: EpochRecord, task: TaskTrainedElsewhere, data: Data) -> None:
    """Refuse figures that are not numbers, as our own loop does."""
    values = {metric.label: record.test.get(metric.name) for metric in task.metrics}
    values["the training loss"] = record.train_loss
    for what, value in values.items():
        if value is not None and not math.isfinite(value):
            raise NonFiniteLossError(
                f"{what} is {value} in epoch {record.epoch} on {data.facts.name!r}: the network's "
                f"outputs are not finite. Lower the learning rate of the trainer."
            )
