"""Which classes a network takes for which, on its test images."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor, nn

from attnlab._errors import DoesNotApplyError
from attnlab.data import class_names
from attnlab.data.pictures import png
from attnlab.instruments.classes.result import ClassesResult, WrongImage
from attnlab.instruments.measurement import MeasureConfig, Measurement
from attnlab.residuals.example import evaluating
from attnlab.subject import Source, Subject, subject_of
from attnlab.subject.run import read_network_config, read_task
from attnlab.tasks import task_class

_WRONG = 12
"""Wrong images that are kept: a row of the page."""
_SIDE = 64
"""Pixels of the longer side of those."""
MOST = 1000
"""Classes up to which the matrix is stored: a million numbers."""


def measure_classes(network: Source, *, names: tuple[str, ...] = ()) -> ClassesResult:
    """Count how often a network takes which class for which: the confusion matrix of its images.

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
    wrong: list[WrongImage] = []
    seen = 0
    with evaluating(subject.network), torch.inference_mode():
        for true, scores, inputs in _answers(subject, number):
            predicted = scores.argmax(1)
            places = true * number + predicted
            counts.view(-1).index_add_(0, places, torch.ones_like(places))
            wrong = _surest([*wrong, *_wrong_images(true, scores, inputs, seen)])
            seen += len(true)
    found = ClassesResult(
        network=subject.name,
        classes=names or tuple(map(str, range(number))),
        confusion=tuple(map(tuple, counts.tolist())),
        wrong=tuple(wrong),
        seconds=perf_counter() - began,
    )
    return subject.sign(found)


def _answers(subject: Subject, number: int) -> Iterator[tuple[Tensor, Tensor, object]]:
    """The true classes, the scores, and the inputs of every batch."""
    task = subject.learned()
    for batch in subject.own_batches():
        scores = task.predict(subject.network, batch)
        if not isinstance(scores, Tensor) or scores.shape[1:] != (number,):
            raise DoesNotApplyError("The task predicts no score per class.")
        yield batch.targets.cpu(), scores.float().cpu(), task.inputs(batch)


def _wrong_images(
    true: Tensor, scores: Tensor, inputs: object, before: int
) -> Iterator[WrongImage]:
    """The surest wrong ones of a batch, if its inputs are pictures."""
    if not isinstance(inputs, Tensor) or inputs.ndim != 4 or inputs.shape[1] not in (1, 3):
        return
    chances, predicted = scores.softmax(1).max(1)
    places = (predicted != true).nonzero().flatten()
    surest = places[chances[places].argsort(descending=True)[:_WRONG]]
    for place in surest.tolist():
        pixels = _shown_pixels(inputs[place])
        yield WrongImage(
            number=before + place,
            true=int(true[place]),
            predicted=int(predicted[place]),
            probability=float(chances[place]),
            png=b64encode(png(pixels)).decode(),
            width=pixels.shape[2],
            height=pixels.shape[1],
        )


def _surest(wrong: list[WrongImage]) -> list[WrongImage]:
    return sorted(wrong, key=lambda each: -each.probability)[:_WRONG]


def _shown_pixels(image: Tensor) -> Tensor:
    """A normalised image as a picture: its smallest value black, its largest white, since what it
    was normalised by may not be known; large ones are made smaller."""
    values = image.detach().float().cpu()
    low, high = values.min(), values.max()
    values = ((values - low) / (high - low).clamp_min(1e-12)).expand(3, -1, -1)
    side = max(values.shape[1:])
    if side <= _SIDE:
        return values
    size = [max(1, round(length * _SIDE / side)) for length in values.shape[1:]]
    return nn.functional.interpolate(values[None], size, mode="area")[0]


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
