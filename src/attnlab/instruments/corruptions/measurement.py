"""What a classifier keeps on corrupted test images, and how far its confidence can be trusted."""

from __future__ import annotations

from pathlib import Path

import torch

from attnlab._spread import evenly_spread
from attnlab.data import Data
from attnlab.data.corruptions import CORRUPTIONS, STRENGTHS, CorruptedData
from attnlab.instruments.config import MeasureConfig
from attnlab.instruments.measurement import Finding, Measurement
from attnlab.subject import Subject
from attnlab.tasks import task_of_classes

_BINS = 15


class Corruptions(Measurement):
    """top-1, calibration error (ECE, 15 bins, L1) and negative log-likelihood: of clean images, of
    every corruption at five strengths, and the mean over all of those."""

    name = "corruptions"

    def settings(self, config: MeasureConfig) -> dict[str, int] | None:
        return {"images": config.corruptions} if config.corruptions else None

    def measure(self, subject: Subject, config: MeasureConfig, folder: Path) -> Finding:
        del folder
        if not task_of_classes(subject.learned()):
            return Finding(None, ("Corruptions are measured of networks that tell classes apart.",))
        clean = _figures(subject, subject.images(), config.corruptions)
        figures = {
            (name, strength): _figures(
                subject, CorruptedData(subject.images(), name, strength), config.corruptions
            )
            for name in CORRUPTIONS
            for strength in STRENGTHS
        }
        mean = {key: sum(each[key] for each in figures.values()) / len(figures) for key in clean}
        rows = [
            {"corruption": name, "strength": strength, **each}
            for (name, strength), each in figures.items()
        ]
        return Finding({"clean": clean, "mean": mean, "rows": rows})


def _figures(subject: Subject, data: Data, number: int) -> dict[str, float]:
    """On test images, evenly spread."""
    from torchmetrics.classification import MulticlassCalibrationError

    facts = data.facts
    chunks = evenly_spread(facts.test, number).split(subject.batch_size)
    meters = subject.learned().meters(subject.device)
    calibration = MulticlassCalibrationError(facts.outputs, _BINS, "l1").to(subject.device)
    with torch.inference_mode():
        for batch in data.testing(chunks, subject.device):
            logits = subject.learned().predict(subject.network, batch)
            meters.update(logits, batch.targets)
            calibration.update(logits.softmax(1), batch.targets)
    found = meters.compute()
    top1, loss = found["top1"], found["loss"]
    assert top1 is not None
    assert loss is not None
    return {"top1": top1, "ece": float(calibration.compute()), "nll": loss}
