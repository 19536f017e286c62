"""What was found in logs that other programs wrote; the JSON file of `attnlab compare`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from attnlab._files import write_whole
from attnlab.results.table import StudyTable

FORMAT: Literal["attnlab compare 1"] = "attnlab compare 1"


@dataclass(frozen=True)
class ComparedRun:
    """One log: where it is in the table, and the metric over its epochs."""

    file: str
    name: str
    row: str
    seed: int | None
    values: tuple[float, ...]


@dataclass(frozen=True)
class StoredComparison:
    """The table, what it was made of, and what was left out."""

    table: StudyTable
    runs: tuple[ComparedRun, ...]
    left_out: tuple[tuple[str, str], ...]
    """(file, why)."""
    by: str
    """The field that names the rows."""
    seeds_needed: dict[str, int | None]
    """By row: how many paired seeds would show its difference with a probability of 80 %, if the
    true one is as seen; None beyond a thousand. Rows without a spread are not there."""
    command: str
    version: str
    date: str
    format: Literal["attnlab compare 1"] = FORMAT


_COMPARISON = TypeAdapter(StoredComparison)


def write_comparison(file: str | Path, comparison: StoredComparison) -> Path:
    """Write the file that `attnlab.report` makes a page of."""
    content = _COMPARISON.dump_python(comparison, mode="json")
    return write_whole(Path(file), json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def to_comparison(found: dict[str, Any]) -> StoredComparison:
    """A comparison from what its file holds."""
    return _COMPARISON.validate_python(found)
