"""The tasks by name, and one of the user's own by where it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import field_validator

from attnlab._errors import unknown_name
from attnlab._imported import imported, is_path
from attnlab._strict import Strict
from attnlab.data.config import Value

if TYPE_CHECKING:
    from attnlab.data import Facts
    from attnlab.tasks.task import Task

TASKS: dict[str, str] = {
    "classification": "attnlab.tasks.classification.Classification",
    "multilabel": "attnlab.tasks.multilabel.MultiLabel",
    "regression": "attnlab.tasks.regression.Regression",
    "detection": "attnlab.tasks.detection.Detection",
    "segmentation": "attnlab.tasks.segmentation.Segmentation",
    "style": "attnlab.tasks.style.Style",
    "style-filters": "attnlab.tasks.style.StyleFilters",
    "language": "attnlab.tasks.language.Language",
    "masked": "attnlab.tasks.masked.Masked",
    "ultralytics": "attnlab.bridges.yolo_study.objects.Ultralytics",
    "ultralytics-segment": "attnlab.bridges.yolo_study.objects.UltralyticsSegment",
    "ultralytics-pose": "attnlab.bridges.yolo_study.objects.UltralyticsPose",
    "ultralytics-classify": "attnlab.bridges.yolo_study.classes.UltralyticsClassify",
}
"""Where each task is: it is imported when it is used."""


class TaskConfig(Strict):
    """Which task, with its options."""

    name: str = "classification"
    """One of `list_tasks()`, or your own subclass of `attnlab.tasks.Task`, "my_module.MyTask"."""
    options: dict[str, Value] = {}

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in TASKS and not is_path(name):
            raise unknown_name("task", name, TASKS)
        return name


def list_tasks() -> tuple[str, ...]:
    """The names of attnlab's own tasks."""
    return tuple(TASKS)


def task_class(config: TaskConfig) -> type[Task]:
    """The class of a task; a wrong option is an error here, before any data are read."""
    from attnlab.tasks.task import Task

    found: type[Task] = imported("task", TASKS.get(config.name, config.name), Task)
    found.check_options(config.options, f"Task {config.name!r}")
    return found


def task_of_classes(task: Task) -> bool:
    """Return whether it predicts one logit per class, with the metrics top1 and loss."""
    from attnlab.tasks.classification import Classification

    return isinstance(task, Classification)


def build_task(config: TaskConfig, facts: Facts) -> Task:
    """The task for a data set."""
    return task_class(config)(facts, **config.options)
