"""A run's directory, read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from attnlab._errors import InputError
from attnlab._files import write_whole
from attnlab.stored import v0_1
from attnlab.stored.measured import Measured
from attnlab.stored.result import RunResult

MEASURED = "measured"


@dataclass(frozen=True)
class StoredRun:
    """What a run's directory says; every part may be missing while the run is not finished."""

    directory: Path

    @property
    def is_trained(self) -> bool:
        return (self.directory / "result.json").is_file()

    @cached_property
    def result(self) -> RunResult:
        """The training's result."""
        path = self.directory / "result.json"
        if not path.is_file():
            raise InputError(
                f"There is no {path}: the run is not finished, or not a run's directory."
            )
        found = self._json("result.json")
        return RunResult(**(v0_1.result(found) if v0_1.is_result(found) else found))

    @cached_property
    def history(self) -> tuple[dict[str, Any], ...]:
        """One record per epoch that is done."""
        path = self.directory / "metrics.jsonl"
        if not path.is_file():
            return ()
        lines = path.read_text(encoding="utf-8").splitlines()
        records = [json.loads(line) for line in lines if line.strip()]
        return tuple(v0_1.record(each) if v0_1.is_record(each) else each for each in records)

    @cached_property
    def config(self) -> dict[str, Any]:
        """All settings, resolved."""
        found = self._json("config.json")
        return v0_1.config(found) if found and v0_1.is_config(found) else found

    @cached_property
    def data(self) -> dict[str, Any]:
        """Facts about the images: name, sizes, checksum."""
        found = self._json("data.json")
        return v0_1.facts(found) if found and v0_1.is_facts(found) else found

    @cached_property
    def environment(self) -> dict[str, Any]:
        return self._json("environment.json")

    @property
    def failure(self) -> dict[str, Any]:
        """Why the last attempt ended; empty where none failed."""
        return self._json("failure.json")

    def measured(self, name: str) -> Measured | None:
        """A measurement; None where it was not made."""
        path = self.directory / MEASURED / f"{name}.json"
        if path.is_file():
            return Measured(**json.loads(path.read_text(encoding="utf-8")))
        if not self.is_trained:
            return None
        old = self._json("result.json")
        return v0_1.measured(name, old, self.directory) if v0_1.is_result(old) else None

    @cached_property
    def measurements(self) -> dict[str, Measured]:
        """All that were made, by name."""
        files = (self.directory / MEASURED).glob("*.json")
        names = sorted({*v0_1.MEASUREMENTS, *(file.stem for file in files)})
        found = ((name, self.measured(name)) for name in names)
        return {name: measured for name, measured in found if measured is not None}

    def write_measured(self, found: Measured) -> Path:
        """Store a measurement, in the place of an earlier one."""
        path = self.directory / MEASURED / f"{found.measurement}.json"
        return write_whole(path, found.model_dump_json(indent=1) + "\n")

    def _json(self, name: str) -> dict[str, Any]:
        path = self.directory / name
        if not path.is_file():
            return {}
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found
