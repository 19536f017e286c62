"""Logs that are tables: one training per file, one per row or group of rows, or one per column."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path

from attnlab.lab.comparison.log import Log, LogError, numbers, run_name


def settings_beside(log: Path, name: str) -> dict[str, str]:
    """Its plain values as text, by key; empty if there is no such file.

    Read as data only: a tag that would build an object is skipped with the whole file.
    """
    import yaml

    file = log.with_name(name)
    if not file.is_file():
        return {}
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        return {}
    if not isinstance(found, dict):
        return {}
    plain = (str, int, float, bool)
    return {str(key): str(value) for key, value in found.items() if isinstance(value, plain)}


Rows = list[dict[str, str]]

_EPOCHS = ("epoch", "step")
_PREFIXES = ("metrics.", "params.", "tags.")
_NAMES = [
    "name",
    "run_name",
    "run",
    "model",
    "method",
    "variant",
    "arch",
    "architecture",
    "config",
    "experiment",
    "description",
    "commit",
]
"""Columns that name a run, if several values are in them; the first that is there does."""
_BETWEEN = " - "
"""What stands between a run and a metric in a heading of a W&B chart's export."""


def read_text(file: Path) -> str:
    """Read the text of a log."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise LogError("is not UTF-8 text") from None
    if "\0" in text:
        raise LogError("holds binary data")
    return text


def read_rows(file: Path) -> Rows:
    """The rows of a file under its stripped headings, with commas, semicolons or tabs between
    cells."""
    given = read_text(file).splitlines()
    mark = _separator(given[0]) if given else ","
    lines = list(csv.reader(given, delimiter=mark, skipinitialspace=True))
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
        cells = [_with_a_point(cell.strip()) if mark == ";" else cell.strip() for cell in line]
        rows.append(dict(zip(heads, cells, strict=True)))
    if not rows:
        raise LogError("has no row below its headings")
    return rows


def _separator(heads: str) -> str:
    """The mark that stands most often between headings; text in quotes does not count."""
    bare = re.sub(r'"[^"]*"', "", heads)
    return max((",", ";", "\t"), key=bare.count)


def _with_a_point(cell: str) -> str:
    """`0,512` as `0.512`: where semicolons separate, a comma is a decimal one."""
    return cell.replace(",", ".") if re.fullmatch(r"[-+]?\d+,\d+(?:[eE][-+]?\d+)?", cell) else cell


def one_run(file: Path, rows: Rows, beside: str = "") -> Log:
    """A file whose rows are the epochs of one training."""
    fields = settings_beside(file, beside) if beside else {}
    fields = {key: value for key, value in fields.items() if key != "name"}
    columns, words = _columns(rows)
    return Log(file, run_name(file), columns, {**words, **fields})


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


def rows_with_names(rows: Rows) -> Rows:
    """The rows with a column `name`, if they are of several trainings and one of `_NAMES` tells
    these apart; otherwise as they are."""
    for column in _NAMES:
        cells: list[object] = [row.get(column) for row in rows]
        if len({*cells}) > 1 and numbers(cells) is None:
            return [{**row, "name": row[column]} for row in rows]
    return rows


def is_wide(rows: Rows) -> bool:
    """Return whether it is the export of a W&B chart: headings `run - metric` after the first
    one."""
    _, *others = rows[0]
    return bool(others) and all(_BETWEEN in head for head in others)


def run_per_column(file: Path, rows: Rows) -> list[Log]:
    """An export of a W&B chart: a column of every run, and its least and greatest within a step,
    which are left out."""
    if not is_wide(rows):
        raise LogError("has no columns 'run - metric': expected the export of a W&B chart")
    runs: dict[str, dict[str, list[float]]] = {}
    for head in list(rows[0])[1:]:
        run, metric = head.rsplit(_BETWEEN, 1)
        found = numbers([row[head] for row in rows])
        if found and not metric.endswith(("__MIN", "__MAX")):
            runs.setdefault(run, {})[metric] = found
    return [Log(file, run, columns) for run, columns in runs.items()]


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
    """Return the columns of numbers, and those of one word."""
    columns, words = {}, {}
    for head in rows[0]:
        cells: list[object] = [row[head] for row in rows]
        found = numbers(cells)
        if found:
            columns[head] = found
        said = {cell for cell in cells if cell}
        if len(said) == 1:
            words[head] = str(said.pop())
    return columns, words
