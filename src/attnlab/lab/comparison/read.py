"""Log files, each by what wrote it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from attnlab._errors import unknown_name
from attnlab.lab.comparison.log import Log, LogError
from attnlab.lab.comparison.tables import (
    Rows,
    is_wide,
    one_run,
    read_rows,
    read_text,
    rows_with_names,
    run_per_column,
    run_per_part,
    run_per_row,
    without_prefixes,
)

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


PRESETS = ("auto", "ultralytics", "lightning", "huggingface", "mlflow", "csv", "wandb", "json")
_JSON = (".json", ".jsonl", ".ndjson")


def read_logs(
    files: Sequence[Path], preset: str = "auto", keys: Sequence[str] = ()
) -> tuple[list[Log], list[tuple[Path, str]]]:
    """The logs in `files`, and the files that cannot be read, each with the reason.

    Args:
        files: of one program or several.
        preset: what wrote them; "auto" looks at each file.
        keys: names of what tells trainings apart. A table that has the first one as a column
            holds several. If that is "name", another column that names runs will do, such as
            "model".
    """
    if preset not in PRESETS:
        raise unknown_name("preset", preset, PRESETS)
    logs: list[Log] = []
    left_out = []
    for file in files:
        try:
            logs += _read(file, preset, keys)
        except LogError as error:
            left_out.append((file, str(error)))
        except OSError as error:
            left_out.append((file, f"cannot be read: {error.strerror}"))
    return logs, left_out


def _read(file: Path, preset: str, keys: Sequence[str]) -> list[Log]:
    if preset in ("huggingface", "json") or (preset == "auto" and file.suffix.lower() in _JSON):
        return _of_rows(file, read_records(file, trainer=preset == "huggingface"), keys)
    rows = read_rows(file)
    kind = _kind(file, rows) if preset == "auto" else preset
    if kind == "wandb":
        return run_per_column(file, rows)
    if kind == "mlflow":
        return run_per_row(file, without_prefixes(rows))
    if kind == "ultralytics":
        return [one_run(file, rows, "args.yaml")]
    if kind == "lightning":
        return [one_run(file, rows, "hparams.yaml")]
    return _of_rows(file, rows, keys)


def _of_rows(file: Path, rows: Rows, keys: Sequence[str]) -> list[Log]:
    if keys and keys[0] == "name" and "name" not in rows[0]:
        rows = rows_with_names(rows)
    if not keys or keys[0] not in rows[0]:
        return [one_run(file, rows)]
    return run_per_part(file, rows, [key for key in keys if key in rows[0]])


def _kind(file: Path, rows: Rows) -> str:
    if any(head.startswith("metrics.") for head in rows[0]):
        return "mlflow"
    if file.with_name("args.yaml").is_file():
        return "ultralytics"
    if file.with_name("hparams.yaml").is_file() or file.parent.name.startswith("version_"):
        return "lightning"
    return "wandb" if is_wide(rows) else "csv"
