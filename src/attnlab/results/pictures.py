"""Pictures beside a run's result: files in its directory, named in measured/pictures.json."""

from __future__ import annotations

from pathlib import Path

from attnlab._strict import Strict
from attnlab.results.run import StoredRun

FOLDER = "pictures"


class Picture(Strict):
    """What a network made of one test image; PNG files, relative to the run's directory."""

    input: str
    output: str
    folded: str | None = None
    """By the network without its constant gates."""


class RunPictures(Strict):
    """All of a run."""

    directory: Path
    pictures: tuple[Picture, ...]
    folded_change: float | None
    """The largest difference of a pixel, 0 to 1, that folding made."""


def read_pictures(run: StoredRun) -> RunPictures | None:
    """Those of a run; None where there are none."""
    found = run.pictures
    if found is None:
        return None
    pictures = tuple(Picture(**each) for each in found["pictures"])
    change = found["folded_change"]
    return RunPictures(directory=run.directory, pictures=pictures, folded_change=change)
