"""Corrupted images, in a study."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from attnlab.instruments.config import MeasureConfig
from attnlab.instruments.corruptions.measure import measure_corruptions
from attnlab.instruments.corruptions.result import CorruptionsResult
from attnlab.instruments.measurement import Measurement
from attnlab.subject import Subject


class CorruptionsMeasurement(Measurement):
    """top-1, calibration error and negative log-likelihood of clean and corrupted test images."""

    name = "corruptions"

    def settings(self, config: MeasureConfig) -> dict[str, int] | None:
        return {"images": config.corruptions} if config.corruptions else None

    def measure(self, subject: Subject, config: MeasureConfig, folder: Path) -> CorruptionsResult:
        del folder
        return measure_corruptions(replace(subject, limit=config.corruptions))
