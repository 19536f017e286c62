"""What a study measures of a finished run: which instrument, on how much, and of which runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from attnlab.instruments.config import MeasureConfig
from attnlab.results.base import Result
from attnlab.subject import Subject


class Measurement(ABC):
    """An instrument as a study uses it. Its result is measured/NAME.json of the run's directory."""

    name: ClassVar[str]
    """The instrument's, which is in the middle of its result's format."""

    def applies(self, folder: Path) -> bool:
        """Whether it makes sense for the run in `folder`; the network need not be looked at."""
        del folder
        return True

    @abstractmethod
    def settings(self, config: MeasureConfig) -> dict[str, int] | None:
        """On how much of what it is measured; None where it is not asked for."""

    @abstractmethod
    def measure(self, subject: Subject, config: MeasureConfig, folder: Path) -> Result:
        """Use the instrument; pictures go to files in `folder`, the run's directory. A
        `DoesNotApplyError` says that there is nothing to measure of this network, and why."""
