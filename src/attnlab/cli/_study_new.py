"""`attnlab study new`: a file to start from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class NewStudy:
    """Write a study file to start from.

    Examples:
      attnlab study new mine.toml
    """

    path: Annotated[Path, tyro.conf.Positional]
    """Where to; an existing file is not touched."""


def new_command(action: NewStudy) -> None:
    """Write it."""
    from attnlab.lab.study.template import new_study

    path = new_study(action.path)
    print(f"wrote {path}")
    print(f"next: attnlab study plan {path}")
