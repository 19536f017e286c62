"""What another program wrote about one training."""

from __future__ import annotations

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
    """Of the run: mostly its folder."""
    columns: dict[str, list[float]]
    """By name, blanks left out; the last value is the last one that was written."""
    fields: dict[str, str] = field(default_factory=dict)
    """What is known of the run: settings that lie beside the log, columns of words."""

    @property
    def known(self) -> dict[str, str]:
        """All that rows and seeds can be made from."""
        return {"name": self.name, **self.fields}


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
