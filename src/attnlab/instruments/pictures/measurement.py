"""Pictures, in a study."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from attnlab.instruments.config import MeasureConfig
from attnlab.instruments.measurement import Measurement
from attnlab.instruments.pictures.measure import draw_pictures
from attnlab.instruments.pictures.result import PicturesResult
from attnlab.subject import Subject


class PicturesMeasurement(Measurement):
    """What the network makes of some test images, where its task makes pictures."""

    name = "pictures"

    def settings(self, config: MeasureConfig) -> dict[str, int] | None:
        return {"images": config.pictures} if config.pictures else None

    def measure(self, subject: Subject, config: MeasureConfig, folder: Path) -> PicturesResult:
        return draw_pictures(replace(subject, limit=config.pictures), folder)
