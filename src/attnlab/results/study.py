"""A study's directory: what it is (study.json), every plan it had (plans.jsonl), what it says
(table.json)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from attnlab._errors import InputError
from attnlab._files import write_whole
from attnlab.results.damage import (
    DamagedFileError,
    check_format,
    parsed_object,
    read_object,
    reading,
    sealed,
    sealed_line,
    unsealed,
)
from attnlab.results.metric import Metric
from attnlab.results.run import StoredRun
from attnlab.results.table import StudyTable


@dataclass(frozen=True)
class StudyCell:
    """One row of one group of a study's table: its runs differ in the seed only."""

    data: str
    backbone: str
    row: str
    plain: bool

    @property
    def group(self) -> str:
        """Rows of one group are compared with each other."""
        return f"{self.data} {self.backbone}"


@dataclass(frozen=True)
class RunEntry:
    """A run of a study and where it is."""

    run_id: str
    folder: str
    """The name of its directory beside `studies`: its id, with more after it if a default of
    attnlab changed since another run with this id was trained."""
    seed: int
    cell: StudyCell
    attention: str
    identity: dict[str, object]
    """What it is made from."""

    def __str__(self) -> str:
        return f"{self.cell.group} {self.cell.row} seed {self.seed}"

    def stored_in(self, out: Path) -> StoredRun:
        """Return what is there of it, in the folder of the runs."""
        return StoredRun(out / self.folder, self.run_id, digested=True)


@dataclass(frozen=True)
class PlanRecord:
    """One plan of a study; they are only ever added to."""

    time: float
    seeds: tuple[int, ...]
    runs: tuple[RunEntry, ...]
    seen: tuple[str, ...]
    """The ids of the runs of the study, of this or an earlier plan, that were finished then."""
    until_decided: bool = False
    """Whether seeds are added until every row is decided: planned looks."""
    lost: str = ""
    """Why it is not known which plans were before this one; empty where it is known."""
    claim: str | None = None
    """What rows were to be as good as, and within what; empty if that was not asked, None in plans
    of attnlab 0.2 and before, which do not say it."""


@dataclass(frozen=True)
class StudyInvocation:
    """How the commands about a study call it, from the folder in which it was run."""

    study: str
    """Its file as it was given, or its name."""
    out: str = "runs"
    """Where its runs are."""
    small: bool = False
    import_from: tuple[str, ...] = ()
    """Folders with classes that the study names."""

    def command(self, action: str, *options: str) -> str:
        """`attnlab study plan mine.toml --effect 1`."""
        small = ("--small",) if self.small else ()
        words = ("attnlab", "study", action, self.study, *options, *small)
        return shlex.join([*words, *self._place, *self._imports])

    def measure(self, name: str, only: str) -> str:
        """`attnlab study measure mine --only speed`: by the name under which it is stored."""
        words = ("attnlab", "study", "measure", name, "--only", only)
        return shlex.join([*words, *self._place, *self._imports])

    def report(self, name: str, *options: str) -> str:
        """`attnlab report runs --study mine -o report.html`."""
        return shlex.join(["attnlab", "report", self.out, "--study", name, *options])

    def fold(self, folder: str) -> str:
        """`attnlab fold runs/RUN -o plain.safetensors`, of a run in its folder."""
        # The run names classes of the user's own only if they had to be found somewhere.
        trust = ("--trust",) if self.import_from else ()
        words = ("attnlab", "fold", str(Path(self.out, folder)), "-o", "plain.safetensors", *trust)
        return shlex.join([*words, *self._imports])

    @property
    def _place(self) -> tuple[str, ...]:
        return ("--out", self.out) if self.out != "runs" else ()

    @property
    def _imports(self) -> tuple[str, ...]:
        return ("--import-from", *self.import_from) if self.import_from else ()


@dataclass(frozen=True)
class StoredStudy:
    """study.json: what a page needs to know of the study without planning it again."""

    name: str
    title: str
    definition: dict[str, object]
    """The study as its file has it."""
    recipe: str
    """The recipe's name."""
    deviations: tuple[tuple[str, object, object], ...]
    """(setting, as the named recipe has it, as the study has it)."""
    bibliography: str
    runs: tuple[RunEntry, ...]
    seeds: tuple[int, ...]
    has_plain: bool
    metrics: tuple[Metric, ...]
    """What the results will be, before there are any."""
    format: int = field(default=2)
    plans_end: str = ""
    """The checksum of the last line of plans.jsonl, so that none can be missing at its end."""
    damage: str = ""
    """Why little is known of it: its file is damaged, and this is what its plans say."""
    invocation: StudyInvocation | None = None
    """How it was called; None if that is not known."""

    @property
    def claim(self) -> str:
        """What its rows are to be as good as, and within what; empty if that is not asked."""
        asked = self.definition.get("equivalence")
        if not isinstance(asked, Mapping):
            return ""
        return f"as good as {asked['to']} within {asked['margin']}"

    @property
    def called(self) -> StudyInvocation:
        """How to call it in a command: by its name if nothing else is known."""
        return self.invocation or StudyInvocation(self.name)


_PLANNED = "`attnlab study run` with the study's file or name writes it anew."
_STUDY = TypeAdapter(StoredStudy)
_PLAN = TypeAdapter(PlanRecord)


def write_study(directory: Path, study: StoredStudy) -> Path:
    return write_whole(directory / "study.json", sealed(_STUDY.dump_python(study, mode="json")))


def read_study(directory: Path) -> StoredStudy:
    """The study of a directory; where its file is damaged, what the last plan says of it."""
    try:
        return _read_study(directory)
    except DamagedFileError as error:
        plans = read_plans(directory).plans
        if not plans:
            raise
        return _of_plan(directory.name, plans[-1], str(error))


def _read_study(directory: Path) -> StoredStudy:
    file = directory / "study.json"
    if not file.is_file():
        raise InputError(f"There is no {file}.")
    found = read_object(file, _PLANNED)
    with reading(file, _PLANNED):
        check_format(found)
        return _STUDY.validate_python(unsealed(found))


def _of_plan(name: str, plan: PlanRecord, damage: str) -> StoredStudy:
    return StoredStudy(
        name=name,
        title=name,
        definition={},
        recipe="that is not known",
        deviations=(),
        bibliography="",
        runs=plan.runs,
        seeds=plan.seeds,
        has_plain=any(run.cell.plain for run in plan.runs),
        metrics=(),
        damage=damage,
    )


def write_table(directory: Path, table: StudyTable) -> Path:
    # After every run that ends, so in one line.
    return write_whole(directory / "table.json", table.to_json(indent=None) + "\n")


def read_table(directory: Path) -> StudyTable:
    """The table of a directory."""
    file = directory / "table.json"
    anew = "`attnlab report` and `attnlab study show` make it anew."
    if not file.is_file():
        raise InputError(f"There is no {file}. {anew}")
    found = read_object(file, anew)
    with reading(file, anew):
        form = found.pop("format", StudyTable.FORMAT)
        if form != StudyTable.FORMAT:
            raise ValueError(f"it has the format {form!r}, expected {StudyTable.FORMAT!r}")
        return StudyTable.validated(found)


def add_plan(directory: Path, plan: PlanRecord) -> Path:
    """Add a plan after those that are there. Each line has the checksum of the one before it and
    its own, so that a line that is changed, removed or put elsewhere is found."""
    file = directory / "plans.jsonl"
    before = file.read_bytes() if file.is_file() else b""
    line = sealed_line({**asdict(plan), "before": read_plans(directory).end})
    return write_whole(file, before + line.encode())


@dataclass(frozen=True)
class Plans:
    """What is known of the plans that a study had."""

    plans: tuple[PlanRecord, ...]
    """The first one first."""
    damage: str = ""
    """Why some are not known; empty where all are."""
    end: str = ""
    """The checksum of the last line."""


_BRING_BACK = (
    "Whether seeds or rows were added after results had been seen is not known, so there is no "
    "verdict. Bring back the file as it was."
)


def read_plans(directory: Path) -> Plans:
    """Read all plans that can be read. That the file is missing beside a study, is cut off, or has
    lines that do not follow each other is damage."""
    file = directory / "plans.jsonl"
    if not file.is_file():
        if not (directory / "study.json").is_file():
            return Plans(())
        return Plans((), str(DamagedFileError(file, "it is not there", _BRING_BACK)))
    try:
        with reading(file, _BRING_BACK):
            lines = file.read_text(encoding="utf-8").splitlines()
            if not lines:
                raise ValueError("it is empty")
    except DamagedFileError as error:
        return Plans((), str(error))
    found: list[PlanRecord] = []
    damage, checksums = "", [""]
    for number, line in enumerate(lines, 1):
        try:
            with reading(file, _BRING_BACK):
                plan, before, own = _read_plan(line)
                if before != checksums[-1]:
                    raise ValueError("it does not follow the line before it")
                found.append(plan)
                checksums.append(own)
        except DamagedFileError as error:
            damage = damage or str(error).replace("is damaged", f"is damaged in line {number}", 1)
    damage = damage or _cut_off(directory, checksums)
    lost = [plan.lost for plan in found if plan.lost]
    return Plans(tuple(found), damage or "".join(lost[:1]), checksums[-1])


def _read_plan(line: str) -> tuple[PlanRecord, str, str]:
    """The plan of a line, the checksum of the line before it, and its own."""
    found = parsed_object(line)
    content = unsealed(found)
    before = content.pop("before")
    return _PLAN.validate_python(content), before, found["checksum"]


def _cut_off(directory: Path, checksums: list[str]) -> str:
    """Why lines are missing at the end; empty if none are, or if study.json cannot tell. One line
    more than it knows of is what a kill between the two files leaves."""
    try:
        end = _read_study(directory).plans_end
    except (DamagedFileError, InputError):
        return ""
    if end in checksums[1:]:
        return ""
    file = directory / "plans.jsonl"
    return str(DamagedFileError(file, "lines are missing at its end", _BRING_BACK))
