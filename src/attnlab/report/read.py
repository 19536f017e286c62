"""What a study wrote to disk, read for its page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlab._errors import InputError, unknown_name
from attnlab.study.definition import Study
from attnlab.study.grid import PlannedRun
from attnlab.study.store import State, Store, read_failure
from attnlab.study.table import Group, StudyTable, study_table
from attnlab.train.result import RunResult

RENDERED = (
    "the folder of the runs of a study (attnlab study run --out), a stiffness.json (attnlab "
    "stiffness --out), a stripe.json (attnlab stripe --out), or a NAME.fold.json (attnlab fold -o "
    "NAME.safetensors)"
)
"""What a page can be made of."""


@dataclass(frozen=True)
class RunRecord:
    """One run and what is there of it."""

    planned: PlannedRun
    directory: Path
    state: State
    result: RunResult | None
    history: tuple[dict[str, Any], ...]
    """One record per epoch."""
    environment: dict[str, Any]
    data: dict[str, Any]
    """Facts about the images: classes, sizes, checksum."""
    failure: str

    @property
    def row(self) -> str:
        return self.planned.cell.row

    @property
    def seed(self) -> int:
        return self.planned.seed


@dataclass(frozen=True)
class StudyRecord:
    """A study, its runs, and the table of what they say."""

    study: Study
    runs: tuple[RunRecord, ...]
    table: StudyTable
    out: Path

    @property
    def finished(self) -> list[RunRecord]:
        return [run for run in self.runs if run.result is not None]

    @property
    def failed(self) -> list[RunRecord]:
        return [run for run in self.runs if run.failure and run.result is None]

    def of(self, group: Group, row: str) -> list[RunRecord]:
        """The finished runs of one row of a group."""
        cell = [r for r in self.finished if r.planned.cell.group == group.name and r.row == row]
        return sorted(cell, key=lambda run: run.seed)

    def results(self, group: Group, row: str) -> list[RunResult]:
        return [run.result for run in self.of(group, row) if run.result is not None]

    def name_of(self, group: Group) -> str:
        """The group's name as short as it may be."""
        same = len({other.backbone for other in self.table.groups}) == 1
        return group.data if same else group.name

    def over_seeds(
        self, group: Group, row: str, read: Callable[[RunResult], float | None]
    ) -> Iterator[float]:
        for result in self.results(group, row):
            value = read(result)
            if value is not None:
                yield value


def find_study(path: str | Path, study: str | None = None) -> tuple[Path, str]:
    """The folder of the runs and the name of the study, of either folder that a user may give."""
    folder = Path(path)
    if (folder / "study.json").is_file():
        return folder.parent.parent, folder.name
    if not folder.is_dir():
        raise InputError(f"There is no {str(folder)!r}. Expected {RENDERED}.")
    names = sorted(file.parent.name for file in folder.glob("studies/*/study.json"))
    if not names:
        single = [*folder.glob("stiffness.json"), *folder.glob("stripe.json")]
        single += sorted(folder.glob("*.fold.json"))
        instead = f" Did you mean {str(single[0])!r}?" if single else ""
        raise InputError(
            f"There is no study in {str(folder)!r}: it has no studies/NAME/study.json.{instead} "
            f"Expected {RENDERED}."
        )
    if study is None and len(names) > 1:
        raise InputError(
            f"{str(folder)!r} holds {len(names)} studies: {', '.join(names)}. Choose one with "
            f"--study NAME."
        )
    chosen = names[0] if study is None else study
    if chosen not in names:
        raise unknown_name("study", chosen, names)
    return folder, chosen


def read_study(path: str | Path, study: str | None = None) -> StudyRecord:
    """All that is on disk about a study, finished or not."""
    out, name = find_study(path, study)
    store = Store(out)
    definition, planned = store.read_study(name)
    runs = tuple(_run(store, run) for run in planned)
    return StudyRecord(definition, runs, study_table(definition, planned, out), out)


def _run(store: Store, planned: PlannedRun) -> RunRecord:
    directory = store.directory(planned.run_id)
    failure = read_failure(directory)
    return RunRecord(
        planned=planned,
        directory=directory,
        state=store.state(planned.run_id),
        result=store.result(planned.run_id),
        history=_history(directory / "metrics.jsonl"),
        environment=_json(directory / "environment.json"),
        data=_json(directory / "data.json"),
        failure="" if failure is None else failure.error,
    )


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _history(path: Path) -> tuple[dict[str, Any], ...]:
    if not path.is_file():
        return ()
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple(json.loads(line) for line in lines if line.strip())
