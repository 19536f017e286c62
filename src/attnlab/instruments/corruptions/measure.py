"""A classifier on corrupted test images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import torch

from attnlab._errors import DoesNotApplyError, OptionError
from attnlab.data.corruptions import CORRUPTIONS, STRENGTHS, CorruptedData
from attnlab.instruments.corruptions.result import (
    ClassifierFigures,
    CorruptedFigures,
    CorruptionsResult,
)
from attnlab.instruments.measurement import MeasureConfig, Measurement
from attnlab.residuals.example import evaluating
from attnlab.subject import Source, Subject, subject_of
from attnlab.tasks import task_of_classes

_BINS = 15
"""Bins of the expected calibration error, as in Guo et al. (ICML 2017)."""


def measure_corruptions(network: Source) -> CorruptionsResult:
    """Measure what a classifier keeps on corrupted test images, and how far its confidence can be
    trusted: noise, blur, brightness, contrast, JPEG and pixels, each at five strengths.

    Args:
        network: any network that tells the classes of its images apart, as for `attnlab.open`.
    """
    began = perf_counter()
    subject = subject_of(network)
    if not task_of_classes(subject.learned()):
        raise DoesNotApplyError("Corruptions are measured of networks that tell classes apart.")
    if subject.part == "train":
        raise OptionError("Corruptions are those of test images: leave part='train' out.")
    with evaluating(subject.network):
        clean = _figures(subject)
        rows = [
            _corrupted(subject, name, strength) for name in CORRUPTIONS for strength in STRENGTHS
        ]
    found = CorruptionsResult(
        network=subject.name,
        images=len(subject.chosen()),
        clean=clean,
        mean=_mean(rows),
        rows=tuple(rows),
        seconds=perf_counter() - began,
    )
    return subject.sign(found)


def _corrupted(subject: Subject, name: str, strength: int) -> CorruptedFigures:
    other = replace(subject, data=CorruptedData(subject.images(), name, strength))
    return CorruptedFigures(**vars(_figures(other)), corruption=name, strength=strength)


def _mean(rows: Sequence[ClassifierFigures]) -> ClassifierFigures:
    return ClassifierFigures(
        top1=sum(row.top1 for row in rows) / len(rows),
        ece=sum(row.ece for row in rows) / len(rows),
        nll=sum(row.nll for row in rows) / len(rows),
    )


def _figures(subject: Subject) -> ClassifierFigures:
    from torchmetrics.classification import MulticlassCalibrationError  # takes seconds to import

    task = subject.learned()
    meters = task.meters(subject.device)
    outputs = subject.images().facts.outputs
    calibration = MulticlassCalibrationError(outputs, _BINS, "l1").to(subject.device)
    with torch.inference_mode():
        for batch in subject.own_batches():
            logits = task.predict(subject.network, batch)
            meters.update(logits, batch.targets)
            calibration.update(logits.softmax(1), batch.targets)
    found = meters.compute()
    top1, loss = found["top1"], found["loss"]
    assert top1 is not None
    assert loss is not None
    return ClassifierFigures(top1, float(calibration.compute()), loss)


class CorruptionsMeasurement(Measurement):
    """top-1, calibration error and negative log-likelihood of clean and corrupted test images."""

    name = "corruptions"

    def settings(self, config: MeasureConfig) -> dict[str, int] | None:
        return {"images": config.corruptions} if config.corruptions else None

    def measure(self, subject: Subject, config: MeasureConfig, folder: Path) -> CorruptionsResult:
        del folder
        return measure_corruptions(replace(subject, limit=config.corruptions))
