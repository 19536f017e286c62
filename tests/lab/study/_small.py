"""The smallest study with real training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from attnlab.lab.study import Executor, Study
from attnlab.lab.study.worker import Job, Outcome, work

TINY = {"name": "digits", "train_subset": 100, "test_subset": 50}
UNMEASURED = {"images": 0, "inference_images": 0}


def small_study(**changes: Any) -> Study:
    settings: dict[str, Any] = {
        "name": "small",
        "data": TINY,
        "backbone": "resnet20",
        "attention": ["none", "se"],
        "seeds": 1,
        "recipe": {"name": "digits", "epochs": 2, "batch_size": 50},
        "measure": UNMEASURED,
    }
    return Study(**{**settings, **changes})


class HereExecutor(Executor):
    """In this process, one after the other; remembers what it was given."""

    def __init__(self) -> None:
        self.given: list[str] = []

    def execute(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        for job in jobs:
            self.given.append(job.label)
            yield work(job)

    def describe(self) -> str:
        return "this process"
