"""Where runs are worked on: this machine, a Ray cluster, Slurm."""

from attnlab.lab.study.executors._base import Executor as Executor
from attnlab.lab.study.executors.local import LocalExecutor as LocalExecutor
from attnlab.lab.study.executors.ray import RayExecutor as RayExecutor
from attnlab.lab.study.executors.slurm import SlurmExecutor as SlurmExecutor
