"""Logs of the Hugging Face trainer: `trainer_state.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from attnlab.lab.comparison.log import Log, LogError, numbers


def read_trainer_state(file: Path) -> Log:
    """Its `log_history`, a list of what was logged at each step."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError):
        raise LogError("is not JSON") from None
    history = found.get("log_history") if isinstance(found, dict) else None
    if not isinstance(history, list) or not all(isinstance(each, dict) for each in history):
        raise LogError("has no log_history: expected a trainer_state.json")
    if not history:
        raise LogError("has an empty log_history")
    records: list[dict[str, Any]] = history
    heads = dict.fromkeys(head for record in records for head in record)
    columns = {head: numbers([record.get(head) for record in records]) for head in heads}
    folder = file.resolve().parent
    name = folder.parent.name if folder.name.startswith("checkpoint-") else folder.name
    return Log(file, name, {head: found for head, found in columns.items() if found})
