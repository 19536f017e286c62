"""What a study wrote to disk, read for its page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from attnlab._errors import InputError, unknown_name
from attnlab.page.plot import row_colours
from attnlab.results import Metric, RunResult, StoredRun
from attnlab.results.base import Result
from attnlab.results.columns import StudyColumns
from attnlab.results.study import (
    PlanRecord,
    RunEntry,
    StoredStudy,
    read_plans,
    read_study,
    read_table,
)
from attnlab.results.table import Group, StudyTable

RENDERED = (
    "the folder of the runs of a study (attnlab study run --out) or of one run, a stiffness.json "
    "(attnlab stiffness --out) or several, a stripe.json (attnlab stripe --out), a maps.json "
    "(attnlab maps --out), a noise.json (attnlab noise --out), a place.json (attnlab "
    "place --out), a shorten.json (attnlab shorten --out), a NAME.fold.json (attnlab fold -o "
    "NAME.safetensors), or a NAME.json (attnlab compare -o NAME.html)"
)
"""What a page can be made of."""


R = TypeVar("R", bound=Result)


@dataclass(frozen=True)
class RunRecord:
    """One run of a study and what is there of it."""

    entry: RunEntry
    stored: StoredRun

    @cached_property
    def result(self) -> RunResult | None:
        """The result; None while the run is not finished."""
        return self.stored.result if self.stored.is_trained else None

    @cached_property
    def failure(self) -> str:
        """Why the last attempt ended; empty where none failed."""
        return "" if self.stored.failure is None else self.stored.failure.error

    @property
    def state(self) -> str:
        if self.stored.damage:
            return "damaged"
        if self.result is not None:
            return "done"
        begun = (self.stored.directory / "config.json").is_file()
        return "failed" if self.failure else "begun" if begun else "waiting"

    def measured(self, kind: type[R]) -> R | None:
        """The result of an instrument without its bulk (`Result.slim`); None where it was not
        measured, or does not apply."""
        return self.stored.slim_result(kind)


@dataclass(frozen=True)
class StudyRecord:
    """A study, its runs, and the table of what they say."""

    study: StoredStudy
    runs: tuple[RunRecord, ...]
    table: StudyTable
    plans: tuple[PlanRecord, ...]

    @property
    def metric(self) -> Metric:
        """What the results are measured in."""
        return self.table.metric

    @cached_property
    def columns(self) -> StudyColumns:
        """The columns of the table, from which all of its forms follow."""
        return StudyColumns(self.table, self.name_of)

    @cached_property
    def colours(self) -> dict[str, str]:
        """The colour of every row, the same on all figures of the study."""
        rows = [row for group in self.table.groups for row in group.rows]
        return row_colours((row.label, row.plain) for row in rows)

    @property
    def level(self) -> str:
        """The level of the intervals: `95 %`."""
        return f"{100 * self.table.level:g} %"

    @cached_property
    def finished(self) -> list[RunRecord]:
        return [run for run in self.runs if run.result is not None]

    @property
    def failed(self) -> list[RunRecord]:
        return [run for run in self.runs if run.failure and run.result is None]

    @property
    def is_current(self) -> bool:
        """Whether the table is of the runs that are planned and finished now."""
        folders = {run.entry.folder for run in self.finished}
        return self.table.planned == len(self.runs) and set(self.table.finished) == folders

    @property
    def is_extended(self) -> bool:
        """Whether seeds were added after results had been seen."""
        return any(b.seen and {*b.seeds} - {*a.seeds} for a, b in pairwise(self.plans))

    def of(self, group: Group, row: str) -> list[RunRecord]:
        """The finished runs of one row of a group, by seed."""
        return self._by_row.get((group.name, row), [])

    @cached_property
    def _by_row(self) -> dict[tuple[str, str], list[RunRecord]]:
        found: dict[tuple[str, str], list[RunRecord]] = {}
        for run in sorted(self.finished, key=lambda run: run.entry.seed):
            found.setdefault((run.entry.cell.group, run.entry.cell.row), []).append(run)
        return found

    def measured(self, group: Group, row: str, kind: type[R]) -> list[R]:
        """The results of an instrument of these without their bulk, if there are some."""
        every = (run.measured(kind) for run in self.of(group, row))
        return [found for found in every if found is not None]

    def label_of(self, run: RunRecord) -> str:
        """`photos resnet20 se, seed 0`."""
        group = next(g for g in self.table.groups if g.name == run.entry.cell.group)
        return f"{self.name_of(group)} {run.entry.cell.row}, seed {run.entry.seed}"

    def name_of(self, group: Group) -> str:
        """The group's name as short as it may be."""
        same = len({other.backbone for other in self.table.groups}) == 1
        return group.data if same else group.name


def find_study(path: str | Path, study: str | None = None) -> tuple[Path, str]:
    """The folder of the runs and the name of the study, of either folder that a user may give."""
    folder = Path(path)
    if (folder / "study.json").is_file():
        own = folder.resolve()
        if study not in (None, own.name):
            raise unknown_name("study", study, [own.name])
        return own.parent.parent, own.name
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


def read_record(
    folder: Path,
    name: str,
    made: tuple[StoredStudy, StudyTable] | None = None,
    read: Callable[[RunEntry], StoredRun] | None = None,
) -> StudyRecord:
    """Read all that is on disk about a study of the runs in `folder`, finished or not; with the
    study and the table that were `made` of it, where they could not be written."""
    directory = folder / "studies" / name
    study, table = made or (read_study(directory), read_table(directory))
    stored = (entry.stored_in(folder) if read is None else read(entry) for entry in study.runs)
    runs = tuple(RunRecord(*each) for each in zip(study.runs, stored, strict=True))
    return StudyRecord(study, runs, table, read_plans(directory).plans)
