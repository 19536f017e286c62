"""A run's directory, which tells its own truth: settings, environment, data and metrics."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from attnlab._errors import InputError
from attnlab._files import remove_partial, write_whole
from attnlab.train.config import RunConfig
from attnlab.train.data import Data
from attnlab.train.environment import environment


def begin(folder: Path, config: RunConfig, data: Data) -> None:
    """Write what the run is, before it starts; a directory of another run is refused."""
    folder.mkdir(parents=True, exist_ok=True)
    remove_partial(folder)
    check_config(folder, config)
    facts = asdict(data.facts)
    stored = folder / "data.json"
    if stored.is_file():
        before = json.loads(stored.read_text(encoding="utf-8"))["checksum"]
        if before != data.facts.checksum:
            raise InputError(
                f"The data changed since the run in {folder} began: checksum {before[:12]}… then, "
                f"{data.facts.checksum[:12]}… now. Use another directory."
            )
    write_whole(folder / "config.json", config.to_json() + "\n")
    write_whole(folder / "environment.json", json.dumps(environment(), indent=1) + "\n")
    write_whole(stored, json.dumps(facts, indent=1) + "\n")


def check_config(folder: Path, config: RunConfig) -> None:
    """Refuse a directory that holds another run."""
    stored = folder / "config.json"
    if not stored.is_file():
        return
    other = RunConfig.from_json(stored.read_text(encoding="utf-8"))
    if other.run_id != config.run_id:
        raise InputError(
            f"{folder} holds run {other.run_id} ({other.label}), expected {config.run_id} "
            f"({config.label}). Use another directory."
        )


def write_metrics(folder: Path, history: list[dict[str, Any]]) -> None:
    """All lines anew: after a kill, the file has exactly the epochs of the checkpoint."""
    write_whole(folder / "metrics.jsonl", "".join(json.dumps(r) + "\n" for r in history))
