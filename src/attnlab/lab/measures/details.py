"""What its task shows of a finished network."""

from __future__ import annotations

from pathlib import Path

import torch

from attnlab.instruments.config import MeasureConfig
from attnlab.instruments.measurement import Finding, Measurement
from attnlab.lab.training.directory import read_config
from attnlab.subject import Subject
from attnlab.tasks import Task, task_class


class DetailsOfTask(Measurement):
    """On all test images, for tasks that show something."""

    name = "details"

    def applies(self, folder: Path) -> bool:
        return task_class(read_config(folder).task).details is not Task.details

    def settings(self, config: MeasureConfig) -> dict[str, int] | None:
        del config
        return {}

    def measure(self, subject: Subject, config: MeasureConfig, folder: Path) -> Finding:
        del config, folder
        chunks = list(torch.arange(subject.images().facts.test).split(subject.batch_size))
        batches = subject.images().testing(chunks, subject.device)
        subject.network.eval()
        with torch.inference_mode():
            found = subject.learned().details(subject.network, batches)
        return Finding(None if found is None else found.model_dump(mode="json"))
