"""What a task shows, in a study."""

from __future__ import annotations

from pathlib import Path

from attnlab.instruments.config import MeasureConfig
from attnlab.instruments.details.measure import measure_details
from attnlab.instruments.measurement import Measurement
from attnlab.results.details import DetailsResult
from attnlab.subject import Subject
from attnlab.subject.run import read_task
from attnlab.tasks import Task, task_class


class DetailsMeasurement(Measurement):
    """On all test images, for tasks that show something."""

    name = "details"

    def applies(self, folder: Path) -> bool:
        return task_class(read_task(folder)).details is not Task.details

    def settings(self, config: MeasureConfig) -> dict[str, int] | None:
        del config
        return {}

    def measure(self, subject: Subject, config: MeasureConfig, folder: Path) -> DetailsResult:
        del config, folder
        return measure_details(subject)
