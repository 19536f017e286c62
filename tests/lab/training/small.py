"""A run that takes a second: sixty digits, a small ResNet."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor, nn

from attnlab.lab.training import RunConfig, RunResult, train

SIGNALS: list[int] = []
"""`Signalling` takes one for each training batch; 0 is none."""


class Signalling(nn.Module):
    """Leaves a batch as it is, and sends its process the next signal."""

    def forward(self, images: Tensor) -> Tensor:
        number = SIGNALS.pop(0) if SIGNALS else 0
        if number:
            os.kill(os.getpid(), number)
        return images


def small(epochs: int = 2, recipe: dict[str, Any] | None = None, **settings: Any) -> RunConfig:
    """A config; `recipe` and `settings` replace what is here."""
    defaults: dict[str, Any] = {
        "data": {"name": "digits", "train_subset": 60, "test_subset": 30},
        "backbone": "resnet20",
    }
    chosen = {"name": "digits", "epochs": epochs, "batch_size": 16, "lr": 0.05, **(recipe or {})}
    return RunConfig(**{**defaults, **settings, "recipe": {"warmup_epochs": 0, **chosen}})


def quiet(record: Any) -> None:
    """Prints nothing."""
    del record


def run(config: RunConfig, folder: Path) -> RunResult:
    """Train on one thread without a word."""
    return train(config, folder, threads=1, progress=quiet)


def weights(folder: Path) -> dict[str, Tensor]:
    """The weights of a finished run."""
    return load_file(folder / "model.safetensors")


def train_listening(config: RunConfig, folder: Path) -> None:
    """A run that hears Ctrl-C, which a shell lets its background jobs ignore, and SIGHUP, which
    nohup does."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    train(config, folder, threads=1, progress=quiet)


def train_killed(config: RunConfig, folder: Path) -> None:
    """A run that saves every other step, and that is lost in its fourth."""
    SIGNALS[:] = [0, 0, 0, signal.SIGKILL]
    train(config, folder, threads=1, progress=quiet, save_steps=2)
