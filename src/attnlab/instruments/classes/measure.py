"""Which classes a network takes for which, on its test images."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor

from attnlab._errors import DoesNotApplyError
from attnlab.data import class_names
from attnlab.instruments.classes.result import ClassesResult
from attnlab.instruments.measurement import MeasureConfig, Measurement
from attnlab.residuals.example import evaluating
from attnlab.subject import Source, Subject, subject_of
from attnlab.subject.run import read_network_config, read_task
from attnlab.tasks import task_class

MOST = 1000
"""Classes up to which the matrix is stored: a million numbers."""


def measure_classes(network: Source, *, names: tuple[str, ...] = ()) -> ClassesResult:
    """How often a network takes which class for which: the confusion matrix of its images.

    Args:
        network: any network that tells the classes of its images apart, as for `attnlab.open`.
        names: what the classes are called; their numbers if left out.
    """
    began = perf_counter()
    subject = subject_of(network)
    number = subject.images().facts.outputs
    if subject.learned().targets != "class":
        what = type(subject.learned()).__name__
        raise DoesNotApplyError(f"The task {what} does not tell classes apart.")
    if number > MOST:
        raise DoesNotApplyError(f"{number} classes: no confusion matrix is stored.")
    counts = torch.zeros(number, number, dtype=torch.int64)
    with evaluating(subject.network), torch.inference_mode():
        for true, predicted in _answers(subject, number):
            places = true * number + predicted
            counts.view(-1).index_add_(0, places, torch.ones_like(places))
    found = ClassesResult(
        network=subject.name,
        classes=names or tuple(map(str, range(number))),
        confusion=tuple(map(tuple, counts.tolist())),
        seconds=perf_counter() - began,
    )
    return subject.sign(found)


def _answers(subject: Subject, number: int) -> list[tuple[Tensor, Tensor]]:
    """The true and the predicted classes of every batch."""
    found = []
    for batch in subject.own_batches():
        scores = subject.learned().predict(subject.network, batch)
        if not isinstance(scores, Tensor) or scores.shape[1:] != (number,):
            raise DoesNotApplyError("The task predicts no score per class.")
        found.append((batch.targets.cpu(), scores.argmax(1).cpu()))
    return found


class ClassesMeasurement(Measurement):
    """The confusion matrix of all test images, where the task has classes."""

    name = "classes"

    def applies(self, folder: Path) -> bool:
        return task_class(read_task(folder)).targets == "class"

    def settings(self, config: MeasureConfig) -> dict[str, int] | None:
        return {} if config.images else None

    def measure(self, subject: Subject, config: MeasureConfig, folder: Path) -> ClassesResult:
        del config
        data = read_network_config(folder).data
        return measure_classes(subject, names=class_names(data, subject.images().facts.outputs))
