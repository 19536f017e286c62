"""What is learned: a task has its loss and its metrics; one file each."""

from typing import TYPE_CHECKING

from attnlab._folders import handed_on
from attnlab.results.metric import Metric as Metric

if TYPE_CHECKING:
    from attnlab.tasks.registry import TaskConfig as TaskConfig
    from attnlab.tasks.registry import build_task as build_task
    from attnlab.tasks.registry import list_tasks as list_tasks
    from attnlab.tasks.registry import task_class as task_class
    from attnlab.tasks.registry import task_of_classes as task_of_classes
    from attnlab.tasks.task import CreatedTask as CreatedTask
    from attnlab.tasks.task import Loss as Loss
    from attnlab.tasks.task import OutputsTask as OutputsTask
    from attnlab.tasks.task import Task as Task
    from attnlab.tasks.task import TaskMeters as TaskMeters
    from attnlab.tasks.task import TaskPictures as TaskPictures

__getattr__, __dir__ = handed_on(
    __name__,
    registry=("TaskConfig", "build_task", "list_tasks", "task_class", "task_of_classes"),
    task=("CreatedTask", "Loss", "OutputsTask", "Task", "TaskMeters", "TaskPictures"),
)
