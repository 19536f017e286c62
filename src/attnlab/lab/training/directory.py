"""A run's directory, which tells its own truth: settings, identity, environment, data, metrics."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from attnlab._errors import InputError
from attnlab._files import remove_partial, write_whole
from attnlab.data import Data, Facts, MemoryData
from attnlab.lab.training.config import RunConfig
from attnlab.lab.training.identity import FILE, Identity, check_stored
from attnlab.results import StoredRun
from attnlab.results.damage import reading
from attnlab.results.environment import environment


def begin(folder: Path, config: RunConfig, identity: Identity, facts: Facts) -> None:
    """Write what the run is, before it starts; a directory of another run is refused."""
    folder.mkdir(parents=True, exist_ok=True)
    remove_partial(folder)
    check_stored(folder, config, identity)
    write_whole(folder / "config.json", config.to_json() + "\n")
    write_whole(folder / FILE, identity.model_dump_json(indent=1) + "\n")
    write_whole(folder / "environment.json", json.dumps(environment(), indent=1) + "\n")
    write_whole(folder / "data.json", json.dumps(asdict(facts), indent=1) + "\n")


def read_facts(folder: Path) -> Facts:
    """What the run's data were."""
    stored = StoredRun(folder)
    stored.check("data.json")
    found = stored.data
    with reading(folder / "data.json", "Train the run anew, in another directory."):
        lists = {name: tuple(found[name]) for name in ("shape", "mean", "std")}
        lists["categories"] = tuple(found.get("categories", ()))  # of detection only
        return Facts(**{**found, **lists})


def read_config(folder: Path) -> RunConfig:
    """The run's settings, resolved."""
    if not (folder / "config.json").is_file():
        raise InputError(
            f"There is no {str(folder / 'config.json')!r}, so {str(folder)!r} is not a run's "
            f"folder."
        )
    stored = StoredRun(folder)
    stored.check("config.json")
    with reading(folder / "config.json", "Train the run anew, in another directory."):
        return RunConfig.resolved(stored.config)


def check_data(folder: Path, data: Data) -> None:
    """Refuse data that are not those of the run."""
    before, now = read_facts(folder).checksum, data.facts.checksum
    if not (folder / FILE).is_file() and isinstance(data, MemoryData):
        now = data.pixel_checksum()  # what 0.1 stored
    if before != now:
        raise InputError(
            f"The data changed since the run in {folder} began: checksum {before[:12]}… then, "
            f"{now[:12]}… now. Give it the data that it was trained with, or train anew."
        )


def write_metrics(folder: Path, history: list[dict[str, Any]]) -> None:
    """All lines anew: after a kill, the file has exactly the epochs of the checkpoint."""
    write_whole(folder / "metrics.jsonl", "".join(json.dumps(r) + "\n" for r in history))
