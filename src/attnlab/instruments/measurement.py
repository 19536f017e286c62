"""What a measurement is, and what it is made on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from attnlab.instruments.config import MeasureConfig
from attnlab.subject import Subject


class Finding(NamedTuple):
    """What was found, as JSON, or None where the measurement does not apply; and remarks."""

    found: dict[str, Any] | None
    notes: tuple[str, ...] = ()


class Measurement(ABC):
    """Its result is measured/NAME.json of the run's directory."""

    name: ClassVar[str]

    def applies(self, folder: Path) -> bool:
        """Whether it makes sense for the run in `folder`; the network need not be looked at."""
        del folder
        return True

    @abstractmethod
    def settings(self, config: MeasureConfig) -> dict[str, int] | None:
        """On how much of what it is measured; None where it is not asked for."""

    @abstractmethod
    def measure(self, subject: Subject, config: MeasureConfig, folder: Path) -> Finding:
        """Measure; large arrays go to files in `folder`, the run's directory."""
