"""What the cases have in common."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

import attnlab

Case = tuple[str, Callable[[Any], object], str]
"""A name, what is done, and how the message begins."""


def run(**changes: Any) -> attnlab.lab.training.RunConfig:
    settings: dict[str, Any] = {
        "backbone": "resnet20",
        "recipe": {"name": "digits", "epochs": 2},
        "data": {"name": "digits", "train_subset": 100, "test_subset": 50},
    }
    return attnlab.lab.training.RunConfig(**{**settings, **changes})


def study(**changes: Any) -> attnlab.lab.study.Study:
    settings: dict[str, Any] = {
        "name": "small",
        "data": {"name": "digits"},
        "backbone": "resnet20",
        "attention": ["none", "se"],
        "seeds": 1,
        "recipe": {"name": "digits", "epochs": 2},
    }
    return attnlab.lab.study.Study(**{**settings, **changes})


def build_task(config: attnlab.lab.training.RunConfig) -> object:
    return attnlab.tasks.build_task(config.task, attnlab.data.load_data(config.data).facts)


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def without_numbers(network: nn.Module) -> nn.Module:
    broken = copy.deepcopy(network)
    nn.init.constant_(next(broken.parameters()), float("nan"))
    return broken
