"""Log files, each by what wrote it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from attnlab._errors import unknown_name
from attnlab.lab.comparison.log import Log, LogError
from attnlab.lab.comparison.tables import (
    Rows,
    is_wide,
    one_run,
    read_rows,
    rows_with_names,
    run_per_column,
    run_per_part,
    run_per_row,
    without_prefixes,
)
from attnlab.lab.comparison.trainer_state import read_records

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
