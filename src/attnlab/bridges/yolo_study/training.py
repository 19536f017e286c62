"""Ultralytics' own training of one network, saved after every epoch so that it goes on to the bit.

Their `resume` reads weights that were rounded to half precision and draws the data anew, so a run
that was stopped would not be the run that it was. Here the trainer is theirs, but for what is
restored: weights, average, optimizer, gradients that were not stepped with yet, and all random
numbers. With data workers (`workers`, on a GPU) the random numbers of augmentation are drawn in
their processes, and a run goes on from the same epoch with other draws.
"""

from __future__ import annotations

import copy
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import nn
from ultralytics.engine.trainer import BaseTrainer
from ultralytics.utils.torch_utils import unwrap_model

from attnlab._errors import GateLostError
from attnlab.bridges.yolo_study.batches import YoloData
from attnlab.bridges.yolo_study.kinds import STRIDE, Kind
from attnlab.data import Value
from attnlab.results.epoch import EpochRecord
from attnlab.surgery.insertion import attachments
from attnlab.tasks.elsewhere import Assignment, TrainerState

Figures = Callable[[Mapping[str, float]], dict[str, float | None]]
"""The values of a task's metrics in what their validator says."""
_FOLDER = "ultralytics"
_KEPT = "args.yaml"
"""What stays of their folder: all settings, as they understood them."""


def train_network(
    network: nn.Module,
    data: YoloData,
    assignment: Assignment,
    settings: Mapping[str, Value],
    figures: Figures,
) -> None:
    """Train a copy of `network` from where it stands; every epoch is reported, with `figures` of
    what their validator says."""
    theirs: Any = network
    with _random_as_before():
        trainer = _resumable(data.kind)(
            overrides={
                **settings,
                "task": data.kind.name,
                "mode": "train",
                "model": str(theirs.yaml["yaml_file"]),  # only for their files
                "data": str(data.source),
                "epochs": assignment.epochs,
                "batch": assignment.batch_size,
                "seed": assignment.seed,
                "patience": 0,
                "plots": False,
                "project": str(assignment.folder),
                "name": _FOLDER,
                "exist_ok": True,
            }
        )
        torch.set_num_threads(assignment.threads)  # they set it to that of the machine
        trainer.model = copy.deepcopy(network)
        trainer.watch(network, data, assignment, figures)
        trainer.train()
    folder = Path(trainer.save_dir)
    for found in folder.iterdir():
        if found.name != _KEPT:
            shutil.rmtree(found) if found.is_dir() else found.unlink()


class _Resumable(BaseTrainer):  # type: ignore[misc]
    """What is put before one of their trainers: it restores, saves and watches."""

    _accumulate = 1
    _shift = 0

    def watch(
        self, network: nn.Module, data: YoloData, assignment: Assignment, figures: Figures
    ) -> None:
        """Report to `assignment`, and begin where it says."""
        self._figures = figures
        self._begun, self._yolo_data, self._assignment = network, data, assignment
        self._expected = [name for name, _ in attachments(network)]
        self._since_step = 0
        for event in (
            "on_train_start",
            "on_train_epoch_start",
            "on_train_batch_start",
            "on_train_batch_end",
            "on_train_epoch_end",
            "on_fit_epoch_end",
        ):
            self.add_callback(event, getattr(type(self), f"_{event}"))

    @property
    def accumulate(self) -> int:
        """Batches for one step of the optimizer. Their loop forgets at a start how many batches
        lie behind the last step; until the first one, this number makes up for it."""
        return self._accumulate + self._shift

    @accumulate.setter
    def accumulate(self, batches: int) -> None:
        self._accumulate = batches

    def optimizer_step(self) -> None:
        super().optimizer_step()
        self._shift, self._since_step = 0, -1

    def resume_training(self, ckpt: object) -> None:
        """Take up what was saved, where theirs would; with another seed of data nothing is."""
        del ckpt
        state = self._assignment.state
        if state is None:
            return
        model = unwrap_model(self.model)
        model.load_state_dict(state["model"])
        self.ema.ema.load_state_dict(self._begun.state_dict())
        self.ema.updates = state["updates"]
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.best_fitness = state["best_fitness"]
        self.stopper.best_fitness, self.stopper.best_epoch = state["stopper"]
        self.loss_names = tuple(state["loss_names"])
        self.start_epoch = self._assignment.done
        model.criterion = model.init_criterion()
        for _ in range(self.start_epoch if hasattr(model.criterion, "update") else 0):
            model.criterion.update()

    def final_eval(self) -> None:
        """Do nothing: theirs validates the best epoch, which was chosen on the test images."""

    def _on_train_start(self) -> None:
        self._yolo_data.check(len(self.train_loader.dataset), len(self.test_loader.dataset))
        assert self.stride == STRIDE
        self._say_gates()
        state = self._assignment.state
        if state is None:
            return
        self._since_step = state["since_step"]
        # Their condition for a step, `batch - last step >= accumulate`, with a last step of -1.
        self._shift = len(self.train_loader) * self.start_epoch - self._since_step
        if self.start_epoch > self._closing:
            self._close_dataloader_mosaic()
            self.args.close_mosaic = 0  # done: or their loop would reset the loader once more

    @property
    def _closing(self) -> int:
        """The epoch from which on there is no mosaic."""
        return max(self.epochs - self.args.close_mosaic, 0)

    def _say_gates(self) -> None:
        """Say which gates are in the network that is trained; all that were put in must be."""
        found = dict(attachments(unwrap_model(self.model)))
        lost = [name for name in self._expected if name not in found]
        if lost:
            raise GateLostError(
                f"The network has {len(self._expected)} gates, and {lost[0]!r} is not in the one "
                f"that Ultralytics trains."
            )
        kinds = sorted({type(gate.gate_module).__name__ for gate in found.values()})
        places = ", ".join(gate.site.module for gate in found.values())
        said = f"{len(found)} gates ({', '.join(kinds)}) at {places}" if found else "no gate"
        self._assignment.note(f"the network that Ultralytics trains has {said}")

    def _on_train_epoch_start(self) -> None:
        state = self._assignment.state
        if state is not None and self.epoch == self.start_epoch:
            self._restore_draws(state)
        self._epoch_began = self._waits_since = perf_counter()
        self._waited, self._step = 0.0, 0

    def _restore_draws(self, state: TrainerState) -> None:
        """Gradients that wait for a step, and all random numbers, as they were."""
        for name, parameter in unwrap_model(self.model).named_parameters():
            gradient = state["gradients"].get(name)
            parameter.grad = None if gradient is None else gradient.to(parameter.device)
        loader = self.train_loader
        if hasattr(loader.dataset, "buffer"):  # mosaics are made of images that were read before
            loader.dataset.buffer.clear()
            for number in state["buffer"]:
                loader.dataset.load_image(number)
        loader.iterator = loader._get_iterator()
        loader.generator.set_state(state["loader"])
        resets = self.args.close_mosaic and self.start_epoch == self._closing
        if len(loader.dataset) % loader.batch_size == 0 and not resets:
            # torch's sampler draws once more when it is asked for an image too many, which with
            # whole batches is at the beginning of the next epoch.
            torch.randperm(len(loader.dataset), generator=loader.generator)
        _set_random(state, self.device)

    def _on_train_batch_start(self) -> None:
        self._waited += perf_counter() - self._waits_since

    def _on_train_batch_end(self) -> None:
        self._since_step += 1
        self._step += 1
        self._assignment.stepped(self.epoch, self._step, len(self.train_loader))
        self._waits_since = perf_counter()

    def _on_train_epoch_end(self) -> None:
        self._trained = perf_counter() - self._epoch_began

    def _on_fit_epoch_end(self) -> None:
        parts = {name: float(value) for name, value in self.tloss.items()}
        record = EpochRecord(
            epoch=self.epoch + 1,
            lr=float(self.lr["lr/pg0"]),
            train_loss=sum(parts.values()),
            loss_parts=parts,
            train_seconds=self._trained,
            data_seconds=self._waited,
            images_per_second=len(self.train_loader.dataset) / self._trained,
            test=self._figures(self.metrics),
            seconds=perf_counter() - self._epoch_began,
        )
        state = self._state()
        with _random_as_before():  # what is measured of an epoch does not change the next
            self._assignment.ended(record, self.ema.ema, state)

    def _state(self) -> dict[str, Any]:
        """All that `resume_training` and `_restore_draws` need, but for the average, which is the
        network that was tested."""
        model = unwrap_model(self.model)
        gradients = {
            n: p.grad.detach().cpu() for n, p in model.named_parameters() if p.grad is not None
        }
        loader = self.train_loader
        return {
            "model": model.state_dict(),
            "updates": self.ema.updates,
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "best_fitness": None if self.best_fitness is None else float(self.best_fitness),
            "stopper": [float(self.stopper.best_fitness), int(self.stopper.best_epoch)],
            "loss_names": list(self.loss_names),
            "since_step": self._since_step,
            "gradients": gradients if self._since_step else {},
            "buffer": list(getattr(loader.dataset, "buffer", ())),
            "loader": loader.generator.get_state(),
            **_random(self.device),
        }


def _resumable(kind: Kind) -> type[_Resumable]:
    """Their trainer for networks of this kind, with all of this."""
    return type(f"Resumable{kind.trainer().__name__}", (_Resumable, kind.trainer()), {})


def _random(device: torch.device) -> dict[str, Any]:
    version, numbers, gauss = random.getstate()
    kind, keys, place, has_gauss, cached = np.random.get_state()
    return {
        "python": [version, list(numbers), gauss],
        "numpy": [
            kind,
            torch.from_numpy(np.asarray(keys).astype(np.int64)),
            place,
            has_gauss,
            cached,
        ],
        "torch": torch.get_rng_state(),
        "device": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }


def _set_random(state: Mapping[str, Any], device: torch.device) -> None:
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    kind, keys, place, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), place, has_gauss, cached))
    torch.set_rng_state(state["torch"])
    if state["device"] is not None:
        torch.cuda.set_rng_state(state["device"], device)


@contextmanager
def _random_as_before() -> Iterator[None]:
    """Random numbers go on afterwards as if nothing had been drawn."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    before = _random(device)
    try:
        yield
    finally:
        _set_random(before, device)
