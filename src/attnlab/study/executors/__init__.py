"""Where runs are worked on: this machine, a Ray cluster, Slurm."""

from attnlab.study.executors._base import Executor as Executor
from attnlab.study.executors.local import LocalExecutor as LocalExecutor
from attnlab.study.executors.ray import RayExecutor as RayExecutor
from attnlab.study.executors.slurm import SlurmExecutor as SlurmExecutor
