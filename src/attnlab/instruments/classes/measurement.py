"""The confusion of classes, in a study."""

from __future__ import annotations

from pathlib import Path

from attnlab.data import class_names
from attnlab.instruments.classes.measure import measure_classes
from attnlab.instruments.classes.result import ClassesResult
from attnlab.instruments.config import MeasureConfig
from attnlab.instruments.measurement import Measurement
from attnlab.subject import Subject
from attnlab.subject.run import read_network_config, read_task
from attnlab.tasks import task_class


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
