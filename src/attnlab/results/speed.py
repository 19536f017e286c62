"""How fast the networks of a study are, timed interleaved at its end: speed.json of its folder."""

from __future__ import annotations

from pathlib import Path

from attnlab._files import write_whole
from attnlab._strict import Strict
from attnlab.results.damage import DamagedFileError, read_object, reading, sealed, unsealed

FILE = "speed.json"


class TimedNetwork(Strict):
    """One network against the first of its group."""

    folder: str
    """The folder of the run whose network it is."""
    milliseconds: float
    """Milliseconds of one image in a batch: the ratio times the reference's."""
    ratio: float
    low: float
    """The lower end of the 95 % interval of the ratio."""
    high: float


class GroupSpeed(Strict):
    """The rows of one group, and the folded forms of those that fold."""

    reference: str
    """The row that the ratios are to."""
    rows: dict[str, TimedNetwork] = {}
    folded: dict[str, TimedNetwork] = {}
    rounds: int = 0
    batch: int = 0
    threads: int = 0
    device: str = ""
    processor: str = ""
    narrow: bool = True
    """Whether every interval became as narrow as asked."""
    busy: str = ""
    """What kept them wide."""


class StudySpeed(Strict):
    """The times by the name of the group; and why there are none, if there are none."""

    groups: dict[str, GroupSpeed] = {}
    why_not: str = ""
    when: float = 0.0


def write_speed(directory: Path, speed: StudySpeed) -> Path:
    return write_whole(directory / FILE, sealed(speed.model_dump(mode="json")))


def read_speed(directory: Path) -> StudySpeed | None:
    """Read the times of a study; None if nothing was timed together."""
    file = directory / FILE
    if not file.is_file():
        return None
    try:
        found = read_object(file, "")
        with reading(file, ""):
            return StudySpeed(**unsealed(found))
    except DamagedFileError as error:
        return StudySpeed(why_not=str(error).removeprefix(f"{directory}/").rstrip(". "))
