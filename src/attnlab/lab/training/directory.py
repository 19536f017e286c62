"""A run's directory, which tells its own truth: settings, identity, environment, data, metrics."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from attnlab._files import remove_partial, write_whole
from attnlab.data import Facts
from attnlab.lab.training.config import RunConfig
from attnlab.lab.training.identity import FILE, Identity, check_stored
from attnlab.results.damage import reading
from attnlab.results.environment import environment
from attnlab.results.epoch import EpochRecord
from attnlab.subject.run import stored_settings


def begin(folder: Path, config: RunConfig, identity: Identity, facts: Facts) -> None:
    """Write what the run is, before it starts; a directory of another run is refused."""
    folder.mkdir(parents=True, exist_ok=True)
    remove_partial(folder)
    check_stored(folder, config, identity)
    write_whole(folder / "config.json", config.to_json() + "\n")
    write_whole(folder / FILE, identity.model_dump_json(indent=1) + "\n")
    write_whole(folder / "environment.json", json.dumps(environment(), indent=1) + "\n")
    write_whole(folder / "data.json", json.dumps(asdict(facts), indent=1) + "\n")


def read_config(folder: Path) -> RunConfig:
    """The run's settings, resolved."""
    settings = stored_settings(folder)
    with reading(folder / "config.json", "Train the run anew, in another directory."):
        return RunConfig.resolved(settings)


def write_metrics(folder: Path, history: Sequence[EpochRecord]) -> None:
    """All lines anew: after a kill, the file has exactly the epochs of the checkpoint."""
    write_whole(folder / "metrics.jsonl", "".join(record.to_line() for record in history))
