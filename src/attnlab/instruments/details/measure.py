"""What its task shows of a network, on its images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import perf_counter

import torch

from attnlab._errors import DoesNotApplyError
from attnlab.instruments.measurement import MeasureConfig, Measurement
from attnlab.residuals.example import evaluating
from attnlab.results.details import DetailsResult
from attnlab.subject import Source, Subject, subject_of
from attnlab.subject.run import read_task
from attnlab.tasks import Task, task_class


def measure_details(network: Source) -> DetailsResult:
    """Collect what the task of a network shows beside its metrics: a detector's AP by category and
    size, precision by recall, some images.

    Args:
        network: a network whose task shows something, such as a run of detection, as for
            `attnlab.open`.
    """
    began = perf_counter()
    subject = subject_of(network)
    task = subject.learned()
    with evaluating(subject.network), torch.inference_mode():
        found = task.details(subject.network, subject.own_batches())
    if found is None:
        raise DoesNotApplyError(f"The task {type(task).__name__} shows nothing beside its metrics.")
    return subject.sign(replace(found, seconds=perf_counter() - began))


class DetailsMeasurement(Measurement):
    """Is taken on all test images, for tasks that show something."""

    name = "details"

    def applies(self, folder: Path) -> bool:
        return task_class(read_task(folder)).details is not Task.details

    def settings(self, config: MeasureConfig) -> dict[str, int] | None:
        del config
        return {}

    def measure(self, subject: Subject, config: MeasureConfig, folder: Path) -> DetailsResult:
        del config, folder
        return measure_details(subject)
