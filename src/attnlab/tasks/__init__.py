"""What is learned: a task has its loss and its metrics; one file each."""

from attnlab.results.metric import Metric as Metric
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
