"""What another program wrote about one training."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from attnlab._errors import AttnlabError


class LogError(AttnlabError, ValueError):
    """A file that holds no log that can be read."""


@dataclass(frozen=True)
class Log:
    """One training: what it was, and its columns over epochs or steps."""

    file: Path
    name: str
    """The name of the run: mostly its folder's."""
    columns: dict[str, list[float]]
    """By name, blanks left out; the last value is the last one that was written."""
    fields: dict[str, str] = field(default_factory=dict)
    """What is known of the run: settings that lie beside the log, columns of words."""

    @property
    def known(self) -> dict[str, str]:
        """Return everything that rows and seeds can be made from."""
        return {"name": self.name, **self.fields}


_NO_NAME = re.compile(r"version_.*|checkpoint-.*|vis_data|\d{8}_\d{6}")
"""Folders that trainers make within that of a run: Lightning's versions, Hugging Face's
checkpoints, mmengine's times and what it draws."""


def run_name(file: Path) -> str:
    """The name of a run: that of its folder, or of the one above if a trainer made that one."""
    folder = file.resolve().parent
    while _NO_NAME.fullmatch(folder.name) and folder.parent != folder:
        folder = folder.parent
    return folder.name


def numbers(cells: list[object]) -> list[float] | None:
    """The cells that are not blank; None where one of them is a word."""
    found = []
    for cell in cells:
        if cell is None or (isinstance(cell, str) and not cell.strip()):
            continue
        if isinstance(cell, bool) or not isinstance(cell, int | float | str):
            return None
        try:
            found.append(float(cell))
        except ValueError:
            return None
    return found
