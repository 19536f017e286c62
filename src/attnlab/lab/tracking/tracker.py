"""What a tracker is: a place outside of the run's own files that its curves go to as well."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlab.results.epoch import EpochRecord


@dataclass(frozen=True)
class TrackedRun:
    """What a tracker is told of a run before its first epoch."""

    folder: Path
    run_id: str
    label: str
    settings: Mapping[str, Any]
    """All of the run's settings, resolved."""
    group: str = ""
    """The study that it belongs to."""


class Tracker(ABC):
    """Writes the figures of one run, in one process, for another program to show.

    What it has already is not written again, so that the curve of a run that was stopped goes on.
    """

    @abstractmethod
    def __init__(self, run: TrackedRun) -> None: ...

    @abstractmethod
    def write(self, history: Sequence[EpochRecord]) -> None:
        """Write those epochs of `history`, which are all so far, that are not there yet."""

    @abstractmethod
    def close(self, finished: bool) -> None:
        """No epoch will follow in this process; in another one, unless the run is `finished`."""
