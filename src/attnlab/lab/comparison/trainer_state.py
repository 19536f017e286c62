"""Logs that are JSON: `trainer_state.json` of the Hugging Face trainer, a list of records, or a
record per line, as mmengine's `scalars.json` has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from attnlab.lab.comparison.log import LogError
from attnlab.lab.comparison.tables import Rows, read_text

Record = dict[str, object]

_COUNTERS = ("epoch", "step", "iter", "mode")
"""What records of training and of validation share without being two figures of one name."""
_DEEPEST = 4
"""Tables within tables that are read; a configuration that was logged may go deeper."""


def read_records(file: Path, trainer: bool = False) -> Rows:
    """The records as rows of text; what is not in a record is blank, tables within one are written
    `table.key`, lists are left out.

    Args:
        file: the log.
        trainer: whether it must be of the Hugging Face trainer.
    """
    text = read_text(file)
    if not text.strip():
        raise LogError("is empty")
    found = _parsed(text)
    history = found.get("log_history") if isinstance(found, dict) else None
    if trainer and history is None:
        raise LogError("has no log_history: expected a trainer_state.json")
    if history == []:
        raise LogError("has an empty log_history")
    if history is None:
        history = [found] if isinstance(found, dict) else found
    if not isinstance(history, list) or not all(isinstance(each, dict) for each in history):
        raise LogError("holds no records: expected a JSON object per line or a log_history")
    return _rows(_told_apart([dict(_flat(record, "")) for record in history]))


def _parsed(text: str) -> object:
    """The whole as one JSON value, or else the list of those of its lines."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    records = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            records.append(json.loads(line))
        except (ValueError, RecursionError):
            raise LogError(f"is not JSON in line {number}") from None
    return records


def _flat(record: Record, prefix: str, depth: int = 0) -> Iterator[tuple[str, object]]:
    for key, value in record.items():
        if isinstance(value, dict) and depth < _DEEPEST:
            yield from _flat(value, f"{prefix}{key}.", depth + 1)
        elif isinstance(value, str | int | float):
            yield f"{prefix}{key}", value


def _told_apart(records: list[Record]) -> list[Record]:
    """With `train/` or `val/` before a name that records of both kinds have: mmengine logs a `time`
    of each. Its older form says the kind as `mode`; in the newer one only training has an `lr`."""
    training = ["lr" in record for record in records]
    usual = ["train" if trains else "val" for trains in training]
    known = any("mode" in record for record in records) or (any(training) and not all(training))
    if not known:
        return records
    modes = [str(record.get("mode", each)) for record, each in zip(records, usual, strict=True)]
    having: dict[str, set[str]] = {}
    for record, mode in zip(records, modes, strict=True):
        for name in record:
            having.setdefault(name, set()).add(mode)
    both = {name for name, own in having.items() if len(own) > 1 and name not in _COUNTERS}
    return [
        {f"{mode}/{name}" if name in both else name: value for name, value in record.items()}
        for record, mode in zip(records, modes, strict=True)
    ]


def _rows(records: list[Record]) -> Rows:
    heads = dict.fromkeys(head for record in records for head in record)
    if not heads:
        raise LogError("holds no numbers")
    return [{head: str(record.get(head, "")) for head in heads} for record in records]
