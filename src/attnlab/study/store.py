"""What is on disk: one directory per run, shared by all studies, and one per study.

OUT/<run id>/           config.json, environment.json, metrics.jsonl, checkpoints, result.json,
                        model.safetensors; while and after it is worked on owner.json, log.txt;
                        failure.json if the last attempt failed
OUT/studies/<name>/     study.json: the study and its runs; table.json: what they say
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from attnlab._errors import InputError
from attnlab._files import write_whole
from attnlab.study.definition import Study
from attnlab.study.grid import PlannedRun, planned_runs
from attnlab.study.lock import is_claimed
from attnlab.train.result import RunResult

State = Literal["done", "running", "failed", "stopped", "waiting"]


@dataclass(frozen=True)
class Failure:
    """Why the last attempt at a run ended."""

    error: str
    when: float
    details: str = ""


@dataclass(frozen=True)
class Store:
    """The folder that holds the runs."""

    out: Path

    def directory(self, run_id: str) -> Path:
        return self.out / run_id

    def study_directory(self, name: str) -> Path:
        return self.out / "studies" / name

    def state(self, run_id: str) -> State:
        """`stopped` runs have begun and resume; `waiting` ones have not."""
        directory = self.directory(run_id)
        if is_finished(directory):
            return "done"
        if is_claimed(directory):
            return "running"
        if (directory / "failure.json").exists():
            return "failed"
        return "stopped" if (directory / "config.json").exists() else "waiting"

    def result(self, run_id: str) -> RunResult | None:
        directory = self.directory(run_id)
        return RunResult.load(directory) if is_finished(directory) else None

    def results(self, runs: Sequence[PlannedRun]) -> Iterator[tuple[PlannedRun, RunResult]]:
        """The finished ones among `runs`."""
        for run in runs:
            result = self.result(run.run_id)
            if result is not None:
                yield run, result

    def write_study(self, study: Study, runs: Sequence[PlannedRun]) -> Path:
        """Record what belongs to the study, so that it can be read without the TOML file."""
        record = {
            "study": study.model_dump(mode="json"),
            "runs": [{"run_id": run.run_id, "seed": run.seed, **asdict(run.cell)} for run in runs],
        }
        return self._write_json(self.study_directory(study.name) / "study.json", record)

    def read_study(self, name: str) -> tuple[Study, list[PlannedRun]]:
        """The study that `write_study` recorded under `name`."""
        path = self.study_directory(name) / "study.json"
        if not path.is_file():
            raise InputError(
                f"There is no {path}. Expected the name of a study that was run with --out "
                f"{self.out}."
            )
        study = Study(**json.loads(path.read_text(encoding="utf-8"))["study"])
        return study, planned_runs(study)

    def write_table(self, study: Study, table: dict[str, Any]) -> Path:
        return self._write_json(self.study_directory(study.name) / "table.json", table)

    def _write_json(self, path: Path, content: Any) -> Path:
        return write_whole(path, json.dumps(content, indent=1, ensure_ascii=False))


def is_finished(directory: Path) -> bool:
    return (directory / "result.json").is_file()


def write_failure(directory: Path, error: str, details: str = "") -> None:
    failure = Failure(error, time.time(), details)
    write_whole(directory / "failure.json", json.dumps(asdict(failure), indent=1))


def read_failure(directory: Path) -> Failure | None:
    try:
        return Failure(**json.loads((directory / "failure.json").read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
