"""What a run changes in its process while it trains, and puts back."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.utils.deterministic

from attnlab._files import remove_partial, write_whole
from attnlab.data import Facts
from attnlab.lab.training.config import RunConfig
from attnlab.lab.training.identity import FILE, Identity, check_stored
from attnlab.results import StoredRun
from attnlab.results.damage import reading
from attnlab.results.environment import environment
from attnlab.results.epoch import EpochRecord
from attnlab.subject.run import stored_settings


@contextmanager
def deterministically(threads: int | None) -> Iterator[None]:
    """Deterministic algorithms, own random state and threads; all as before afterwards."""
    switches: Any = torch.utils.deterministic
    before = (
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        switches.fill_uninitialized_memory,
    )
    if threads is not None:
        torch.set_num_threads(threads)
    # Some operations on GPUs have no deterministic form; there a run repeats only nearly.
    torch.use_deterministic_algorithms(not torch.cuda.is_available(), warn_only=True)
    switches.fill_uninitialized_memory = False  # costs time, changes no result
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(before[0])
        torch.use_deterministic_algorithms(before[1], warn_only=before[2])
        switches.fill_uninitialized_memory = before[3]


def begin(folder: Path, config: RunConfig, identity: Identity, facts: Facts) -> None:
    """Write what the run is, before it starts; a directory of another run is refused."""
    folder.mkdir(parents=True, exist_ok=True)
    remove_partial(folder)
    check_stored(folder, config, identity)
    write_whole(folder / "config.json", config.to_json() + "\n")
    write_whole(folder / FILE, identity.model_dump_json(indent=1) + "\n")
    # Every start is kept: a run that goes on under another version of torch is made by both.
    earlier = [start.given() for start in StoredRun(folder).starts]
    starts = [*earlier, {"when": time.time(), **environment()}]
    write_whole(folder / "environment.json", json.dumps({"starts": starts}, indent=1) + "\n")
    write_whole(folder / "data.json", json.dumps(asdict(facts), indent=1) + "\n")


def read_config(folder: Path) -> RunConfig:
    """The run's settings, resolved."""
    settings = stored_settings(folder)
    with reading(folder / "config.json", "Train the run anew, in another directory."):
        return RunConfig.resolved(settings)


def write_metrics(folder: Path, history: Sequence[EpochRecord]) -> None:
    """Write all lines anew: after a kill, the file has exactly the epochs of the checkpoint."""
    write_whole(folder / "metrics.jsonl", "".join(record.to_line() for record in history))
