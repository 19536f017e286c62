"""Logs that are CSV files: one training per file, or one per row or group of rows."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from attnlab.lab.comparison.log import Log, LogError, numbers
from attnlab.lab.comparison.settings import settings_beside

Rows = list[dict[str, str]]

_EPOCHS = ("epoch", "step")
_PREFIXES = ("metrics.", "params.", "tags.")


def read_rows(file: Path) -> Rows:
    """The rows of a CSV file under its stripped headings."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise LogError("is not UTF-8 text") from None
    if "\0" in text:
        raise LogError("holds binary data")
    lines = list(csv.reader(text.splitlines(), skipinitialspace=True))
    if len(lines) < 2:
        raise LogError("has no row below its headings" if lines else "is empty")
    heads = [head.strip() for head in lines[0]]
    twice = [head for head in dict.fromkeys(heads) if heads.count(head) > 1]
    if twice:
        raise LogError(f"has the column {twice[0]!r} twice")
    rows = []
    for number, line in enumerate(lines[1:], 2):
        if not any(cell.strip() for cell in line):
            continue
        if len(line) != len(heads):
            raise LogError(f"has {len(line)} cells in line {number}, expected {len(heads)}")
        rows.append(dict(zip(heads, map(str.strip, line), strict=True)))
    if not rows:
        raise LogError("has no row below its headings")
    return rows


def one_run(file: Path, rows: Rows, beside: str = "") -> Log:
    """A file whose rows are the epochs of one training."""
    folder = file.resolve().parent
    # Lightning numbers what is started again: the folder above says what it is.
    name = folder.parent.name if folder.name.startswith("version_") else folder.name
    fields = settings_beside(file, beside) if beside else {}
    fields = {key: value for key, value in fields.items() if key != "name"}
    columns, words = _columns(rows)
    return Log(file, name, columns, {**words, **fields})


def run_per_row(file: Path, rows: Rows) -> list[Log]:
    """A file with one row per training."""
    return [_of(file, f"row {number}", [row]) for number, row in enumerate(rows, 2)]


def run_per_part(file: Path, rows: Rows, keys: Sequence[str]) -> list[Log]:
    """A file with a row, or one row per epoch, of every training; `keys` tell these apart."""
    epochs = next((name for name in _EPOCHS if name in rows[0]), None)
    if epochs is None:
        return run_per_row(file, rows)
    parts: dict[tuple[str, ...], Rows] = {}
    for row in rows:
        parts.setdefault(tuple(row[key] for key in keys), []).append(row)
    logs = []
    for key, part in parts.items():
        label = " ".join(key)
        at = numbers([row[epochs] for row in part])
        if at is None or len(at) < len(part):
            raise LogError(f"has a row without a number in {epochs!r} ({label})")
        if len({*at}) < len(at):
            raise LogError(f"has the same {epochs} twice for {label}")
        order = sorted(range(len(at)), key=at.__getitem__)
        logs.append(_of(file, label, [part[index] for index in order]))
    return logs


def without_prefixes(rows: Rows) -> Rows:
    """The rows of an MLflow export, whose headings are `metrics.x`, `params.y`, `tags.z`."""
    taken: dict[str, str] = {}
    for head in rows[0]:
        short = next((head.removeprefix(p) for p in _PREFIXES if head.startswith(p)), head)
        if short in taken:
            raise LogError(f"has both {taken[short]!r} and {head!r}")
        taken[short] = head
    return [{short: row[head] for short, head in taken.items()} for row in rows]


def _of(file: Path, name: str, rows: Rows) -> Log:
    columns, words = _columns(rows)
    return Log(file, words.pop("name", name), columns, words)


def _columns(rows: Rows) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Those of numbers, and those of one word."""
    columns, words = {}, {}
    for head in rows[0]:
        cells: list[object] = [row[head] for row in rows]
        found = numbers(cells)
        if found:
            columns[head] = found
        if len({*cells}) == 1 and cells[0]:
            words[head] = str(cells[0])
    return columns, words
