"""What an executor is."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from attnlab._errors import OptionError
from attnlab.lab.study.worker import Job, Outcome


class Executor(ABC):
    """Works on jobs, several at a time."""

    @property
    def at_a_time(self) -> int | None:
        """How many, where that is known."""
        return None

    @abstractmethod
    def execute(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """An outcome for each job, as they come in."""

    @abstractmethod
    def describe(self) -> str:
        """One line for the log."""


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def missing_package(package: str, extra: str, instead: str) -> OptionError:
    return OptionError(
        f"--on {extra} needs {package}, which is not installed: pip install 'attnlab[{extra}]'. "
        f"Or {instead}."
    )
