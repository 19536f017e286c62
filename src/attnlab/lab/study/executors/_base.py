"""What an executor is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from attnlab._errors import OptionError
from attnlab.lab.study.threads import default_threads, threads_of_environment
from attnlab.lab.study.worker import Job, Outcome


class Executor(ABC):
    """Works on jobs, several at a time."""

    @property
    def at_a_time(self) -> int | None:
        """How many, where that is known."""
        return None

    @property
    def threads(self) -> int:
        """Threads per process of a study that says nothing about them."""
        return default_threads()

    @property
    def threads_asked(self) -> bool:
        """Whether somebody asked for these, so that a study that had others starts anew."""
        return threads_of_environment() is not None

    @abstractmethod
    def execute(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """An outcome for each job, as they come in."""

    @abstractmethod
    def describe(self) -> str:
        """Say in one line for the log what it runs on."""


def missing_package(package: str, extra: str, instead: str) -> OptionError:
    return OptionError(
        f"--on {extra} needs {package}, which is not installed: pip install 'attnlab[{extra}]'. "
        f"Or {instead}."
    )


def check_reach(jobs: Sequence[Job]) -> None:
    """Refuse results in the memory of one process, for runs that are made in others."""
    found = [job.address for job in jobs if job.address.startswith("memory:")]
    if found:
        raise OptionError(
            f"{found[0]!r} is the memory of this process, and runs are made in processes of their "
            f"own, whose results would be lost. Give a folder, or the address of a store that all "
            f"of them reach, such as s3://bucket/runs."
        )
