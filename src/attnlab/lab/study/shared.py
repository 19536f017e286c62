"""A table that grows by the rows of others: one plan, and for every row a run of every seed.

A row enters only if its runs are finished and whole, are made from the table's own settings, data
and threads but for the gate, have all of its seeds, and if their weights, tested anew, have the
result that is written down. A row without a gate is the network with other options of its own: the
control that has as many parameters as a gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import ClassVar, Self

from attnlab._errors import AttnlabError, InputError, unknown_name
from attnlab.instruments.corruptions.result import CorruptionsResult
from attnlab.instruments.stiffness.result import StiffnessResult
from attnlab.instruments.stripe.result import StripeResult
from attnlab.lab.statistics import (
    judge_differences,
    paired_difference,
    seeds_needed,
    summarize,
)
from attnlab.lab.study.current import require_study
from attnlab.lab.study.speed import group_speed
from attnlab.lab.study.store import Store
from attnlab.lab.training.evaluate import evaluate
from attnlab.page.tables import Cell, Table, number_cell
from attnlab.results import Metric, StoredRun
from attnlab.results.base import Number, Result
from attnlab.results.damage import read_object, reading
from attnlab.results.identity import FILE, Identity
from attnlab.results.speed import GroupSpeed, TimedNetwork
from attnlab.results.study import RunEntry, StoredStudy, read_study
from attnlab.results.table import Comparison, PairedDifference
from attnlab.subject import open_run

OF_THE_GATE = ("attention", "gate_options", "where", "start", "place", "shared", "seed")
"""Settings in which the runs of a table may differ."""
OF_THE_NETWORK = "backbone_options"
"""And those in which a row without a gate may: a network that has one differs by its gate alone."""


@dataclass(frozen=True)
class SharedRun:
    """One run of a row, as a table of several people holds it."""

    seed: int
    run_id: str
    value: Number
    """The result as it is stored: top-1 is a share."""
    parameters: int
    macs: int | None
    tns: float | None
    """Total neural stiffness, where it was measured."""
    constancy: float | None
    """The median over gates of the spread across images relative to that across channels: 0 is a
    gate that does not depend on the image. None if there is no gate, or it was not measured."""
    corrupted: float | None = None
    """The share of corrupted test images that is told right: the mean over noise, blur, brightness,
    contrast, JPEG and pixels at five strengths. None where it was not measured."""


@dataclass(frozen=True)
class SharedTime:
    """The time of one forward relative to the plain network, both timed in one process."""

    ratio: float
    low: float
    """The lower end of its 95 % interval."""
    high: float
    processor: str
    """The processor of the machine that timed both."""

    @classmethod
    def of(cls, row: str, timed: Mapping[str, TimedNetwork], group: GroupSpeed) -> Self | None:
        """Take the time of a row among the networks of its group; None if it was not timed."""
        if row not in timed:
            return None
        found = timed[row]
        return cls(found.ratio, found.low, found.high, group.processor)

    def cell(self) -> Cell:
        """Return the cell of a table, `1.13 [1.11, 1.15]`."""
        return Cell(f"{self.ratio:.2f} [{self.low:.2f}, {self.high:.2f}]", order=self.ratio)


@dataclass(frozen=True)
class SharedRow:
    """One module: a run of every seed."""

    label: str
    plain: bool
    gate: dict[str, object]
    """Its settings, without the seed; without a gate, the network's options if they are others."""
    sources: dict[str, str]
    """Checksums of classes that are not attnlab's."""
    runs: tuple[SharedRun, ...]
    time: SharedTime | None = None
    """With its gates. None where it was not timed, and of the plain network."""
    folded_time: SharedTime | None = None
    """After its gates were folded away. None where they do not fold, or it was not timed."""

    def same_as(self, other: SharedRow) -> bool:
        """Return whether it is that row; another machine, or another hour, has other times."""
        timeless = [replace(row, time=None, folded_time=None) for row in (self, other)]
        return timeless[0] == timeless[1]

    @property
    def ids(self) -> frozenset[str]:
        """The identities of its runs."""
        return frozenset(run.run_id for run in self.runs)

    def by_seed(self, metric: Metric) -> dict[int, float]:
        """The results in the metric's unit."""
        return {run.seed: metric.shown(run.value) for run in self.runs}


@dataclass(frozen=True, kw_only=True)
class SharedTable(Result):
    """Rows that were made by one plan, whoever made them."""

    FORMAT: ClassVar[str] = "attnlab shared table 2"

    title: str
    metric: Metric
    """The result's."""
    plan: dict[str, object]
    """The settings that all runs share."""
    data: str
    """The checksum of the data."""
    threads: int
    seeds: tuple[int, ...]
    rows: tuple[SharedRow, ...]

    @property
    def plain(self) -> SharedRow:
        """The row that the others are compared with."""
        return next(row for row in self.rows if row.plain)

    def judged(self) -> dict[str, Comparison]:
        """Every other row against the plain one, with Holm's correction over all of them."""
        plain = self.plain.by_seed(self.metric)
        differences = {
            row.label: paired_difference(row.by_seed(self.metric), plain)
            for row in self.rows
            if not row.plain
        }
        return judge_differences(differences, better=self.metric.better)

    def row(self, label: str) -> SharedRow:
        """The row with this label."""
        found = {row.label: row for row in self.rows}
        if label not in found:
            raise unknown_name("row", label, found)
        return found[label]

    def difference(self, one: str, other: str) -> PairedDifference:
        """One row minus another, seed by seed."""
        first, second = (self.row(label).by_seed(self.metric) for label in (one, other))
        return paired_difference(first, second)

    def seeds_to_tell(self, one: str, other: str) -> int | None:
        """Return how many seeds it takes to tell two rows apart, with 80 % power at the 95 % level,
        if they differ by as much, and scatter by as much, as in this table. None if the seeds say
        nothing: no difference, or the same for every seed, or more than a thousand."""
        found = self.difference(one, other)
        return None if not found.std or not found.mean else seeds_needed(found.mean, found.std)

    @property
    def verdict(self) -> str:
        """How many rows are shown to be better or worse."""
        found = [each.verdict for each in self.judged().values()]
        better, worse = found.count("better"), found.count("worse")
        return (
            f"Of {len(found)} rows, {better} are shown to be better than {self.plain.label} and "
            f"{worse} to be worse, with {len(self.seeds)} seeds, after Holm over all rows."
        )

    def table(self) -> Table:
        """A line per row: result, difference by seed, and what it costs. The interval `Δ at any
        time` stays right for whoever looks at the table and adds seeds to it."""
        judged = self.judged()
        heads = ["module", self.metric.title, "Δ", "p (Holm)", "verdict", "Δ at any time"]
        heads += ["parameters", "MACs", "TNS", "constancy", "corrupted %", "time", "folded"]
        lines = [
            [
                *_result_cells(row, judged.get(row.label), self.metric),
                *_costs(row),
                *_under_load(row),
            ]
            for row in self.rows
        ]
        return Table(heads, lines, self.title, names=1)


def _result_cells(row: SharedRow, judged: Comparison | None, metric: Metric) -> list[Cell]:
    summary = summarize(list(row.by_seed(metric).values()))
    cells = [Cell(row.label), Cell(summary.text(metric.digits), order=summary.mean)]
    if judged is None:
        return [*cells, Cell(""), Cell(""), Cell(""), Cell("")]
    found = judged.difference
    usual, anytime = (
        "" if low is None or high is None else metric.interval_text(low, high)
        for low, high in ((found.low, found.high), (found.anytime_low, found.anytime_high))
    )
    difference = Cell(metric.signed(found.mean), usual, order=found.mean)
    p_value = number_cell(judged.adjusted_p, "{:.3f}")
    return [*cells, difference, p_value, Cell(judged.verdict), Cell(anytime)]


def _costs(row: SharedRow) -> list[Cell]:
    first = row.runs[0]
    tns = [run.tns for run in row.runs if run.tns is not None]
    constancy = [run.constancy for run in row.runs if run.constancy is not None]
    return [
        number_cell(first.parameters, "{:,}"),
        number_cell(first.macs, "{:,}"),
        number_cell(fmean(tns) if tns else None, "{:.4f}"),
        number_cell(fmean(constancy) if constancy else None, "{:.2f}"),
    ]


def _under_load(row: SharedRow) -> list[Cell]:
    """What it keeps on corrupted images, and the time that it takes, with gates and without."""
    kept = [100 * run.corrupted for run in row.runs if run.corrupted is not None]
    times = [row.time, row.folded_time]
    cells = [Cell("") if time is None else time.cell() for time in times]
    return [number_cell(fmean(kept) if kept else None, "{:.2f}"), *cells]


def begin_table(title: str, runs: Sequence[RunEntry], out: Path) -> SharedTable:
    """A table with no rows yet, whose plan is that of the plain runs of a study."""
    plain = [entry for entry in runs if entry.cell.plain]
    if not plain:
        raise InputError(
            "Expected a study with the plain backbone as a row, which begins a table, but this one "
            "has none. Add 'none' to its attention."
        )
    first = _identity(plain[0].stored_in(out))
    return SharedTable(
        title=title,
        metric=plain[0].stored_in(out).result.metric,
        plan=_common(first.settings),
        data=first.data,
        threads=first.threads,
        seeds=tuple(sorted(entry.seed for entry in plain)),
        rows=(),
    )


def check_row(
    table: SharedTable,
    entries: Sequence[RunEntry],
    out: Path,
    timed: GroupSpeed | None = None,
    *,
    trust: bool = False,
) -> SharedRow:
    """The row that these runs are; an error that says what does not fit where they do not."""
    label = entries[0].cell.row
    by_seed = {entry.seed: entry for entry in entries}
    missing = [seed for seed in table.seeds if seed not in by_seed]
    if missing:
        raise InputError(f"Expected runs of the seeds {list(table.seeds)}: {missing} are missing.")
    waiting = [seed for seed in table.seeds if not by_seed[seed].stored_in(out).has_result]
    if waiting:
        raise InputError(f"Its runs of the seeds {waiting} are not finished.")
    runs, gates, sources = [], [], []
    for seed in table.seeds:
        stored = by_seed[seed].stored_in(out)
        identity = _checked_identity(table, stored, seed)
        gates.append(_of_row(identity.settings, table.plan))
        sources.append(identity.sources)
        runs.append(_run(table, stored, seed, trust=trust))
    if any(each != gates[0] for each in gates) or any(each != sources[0] for each in sources):
        raise InputError("Expected one gate for all seeds but its settings or its source differ.")
    plain = entries[0].cell.plain
    found = SharedRow(label, plain, gates[0], sources[0], tuple(runs))
    if timed is None or plain:
        return found
    own, folded = (SharedTime.of(label, each, timed) for each in (timed.rows, timed.folded))
    return replace(found, time=own, folded_time=folded)


def with_row(table: SharedTable, row: SharedRow) -> SharedTable:
    """The table with one row more. A row that is there is never replaced."""
    for other in table.rows:
        if other.label != row.label and not other.ids.isdisjoint(row.ids):
            raise InputError(f"The same runs are in the table already, as {other.label!r}.")
        if other.label == row.label and not other.same_as(row):
            raise InputError(
                f"The table has another row {row.label!r}, with the results "
                f"{[r.value for r in other.runs]}; these are {[r.value for r in row.runs]}. Give "
                f"yours another label. If its settings are the same, another processor or version "
                f"rounds differently, and rows of one table are only compared on one."
            )
        if other.label == row.label:
            return table
    return replace(table, rows=(*table.rows, row))


def _identity(stored: StoredRun) -> Identity:
    file = stored.directory / FILE
    with reading(file, "Train the run anew."):
        return Identity.model_validate(read_object(file, "Train the run anew."))


def _checked_identity(table: SharedTable, stored: StoredRun, seed: int) -> Identity:
    """What a run is made from, if it is what the table asks for and the run's files are whole."""
    for problem in stored.damage:
        raise problem
    identity = _identity(stored)
    if identity.run_id != stored.result.run_id:
        raise InputError(
            f"{stored.directory} has the id {stored.result.run_id} but is made from settings whose "
            f"id is {identity.run_id}."
        )
    if identity.settings.get("seed", 0) != seed:
        raise InputError(
            f"Expected seed {seed} but the settings of {stored.directory} have "
            f"{identity.settings.get('seed', 0)}."
        )
    wanted = Identity(settings=table.plan, data=table.data, threads=table.threads)
    shared = _common(identity.settings)
    if _is_control(identity.settings, table.plan):
        shared = {name: each for name, each in shared.items() if name != OF_THE_NETWORK}
        shared |= {name: each for name, each in table.plan.items() if name == OF_THE_NETWORK}
    own = identity.model_copy(update={"settings": shared, "sources": {}})
    if found := wanted.differences(own):
        raise InputError(f"It was not made by the table's plan: {'; '.join(found)}.")
    return identity


def _common(settings: Mapping[str, object]) -> dict[str, object]:
    return {name: each for name, each in settings.items() if name not in OF_THE_GATE}


def _is_control(settings: Mapping[str, object], plan: Mapping[str, object]) -> bool:
    """Whether it is a network without gates that has other options than the plan's."""
    return "attention" not in settings and settings.get(OF_THE_NETWORK) != plan.get(OF_THE_NETWORK)


def _of_row(settings: Mapping[str, object], plan: Mapping[str, object]) -> dict[str, object]:
    """What sets it apart from the table's plain network."""
    own = {name: settings[name] for name in OF_THE_GATE if name in settings and name != "seed"}
    if _is_control(settings, plan):
        own[OF_THE_NETWORK] = settings.get(OF_THE_NETWORK, {})
    return own


def _run(table: SharedTable, stored: StoredRun, seed: int, *, trust: bool) -> SharedRun:
    result = stored.result
    value = result.values.get(table.metric.name)
    if value is None:
        raise InputError(
            f"Expected a run with {table.metric.name!r} but {stored.directory} has none."
        )
    _test_again(table.metric, stored, value, trust=trust)
    stiff, stripes = (stored.slim_result(kind) for kind in (StiffnessResult, StripeResult))
    assert stiff is None or isinstance(stiff, StiffnessResult)
    assert stripes is None or isinstance(stripes, StripeResult)
    robust = stored.slim_result(CorruptionsResult)
    ratios = [] if stripes is None else [s.ratio for s in stripes.sites if s.ratio is not None]
    return SharedRun(
        seed=seed,
        run_id=result.run_id,
        value=value,
        parameters=result.parameters,
        macs=result.macs,
        tns=None if stiff is None else stiff.tns,
        constancy=median(ratios) if ratios else None,
        corrupted=None if robust is None else robust.mean.top1,
    )


def _test_again(metric: Metric, stored: StoredRun, value: float, *, trust: bool) -> None:
    """Refuse a result that the weights do not have. Another processor rounds differently, so that
    one image may fall on the other side of a decision."""
    subject = open_run(stored.directory, trust=trust)
    data = subject.images()
    measured = evaluate(
        subject.network, subject.learned(), data, subject.batch_size, subject.device
    )
    again = measured[metric.name]
    if again is None or abs(again - value) > max(1 / data.facts.test, 1e-3 * abs(value)) + 1e-9:
        raise InputError(
            f"{stored.directory} says {metric.text(value)}, but its weights have "
            f"{'none' if again is None else metric.text(again)} on its test images."
        )


def _times_of(entries: Sequence[RunEntry], study: StoredStudy, out: Path) -> GroupSpeed | None:
    """What was timed with the row, if that was relative to the plain network."""
    group = entries[0].cell.group
    plain = {each.cell.row for each in study.runs if each.cell.plain and each.cell.group == group}
    timed, _ = group_speed(Store(out.resolve()), study, group)
    return timed if timed is not None and timed.reference in plain else None


@dataclass(frozen=True)
class Submitted:
    """What came of a submission."""

    table: SharedTable
    """With the rows that fit."""
    fitting: tuple[str, ...]
    refused: dict[str, str]
    """Why, by the label of the row."""


def submit_rows(
    name: str,
    table: str | Path,
    out: str | Path = "runs",
    *,
    add: bool = False,
    trust: bool = False,
) -> Submitted:
    """Check every row of the stored study `name` against a shared table.

    Args:
        name: of a study that was run.
        table: the table's JSON file; with `add` one that is not there is begun.
        out: where the runs are.
        add: whether the rows that fit are written into it.
        trust: whether classes that are not attnlab's may be imported.
    """
    store, file = Store.at(out), Path(table)
    folder, study = store.out, read_study(require_study(store, name))
    if study.damage:
        raise InputError(study.damage)
    grown = _stored_or_begun(file, study, folder, add)
    by_row: dict[str, list[RunEntry]] = {}
    for entry in study.runs:
        by_row.setdefault(entry.cell.row, []).append(entry)
    fitting, refused = [], {}
    for label, entries in by_row.items():
        timed = _times_of(entries, study, folder)
        try:
            grown = with_row(grown, check_row(grown, entries, folder, timed, trust=trust))
            fitting.append(label)
        except AttnlabError as error:
            refused[label] = str(error)
    if add and fitting:
        grown.save(file)
    return Submitted(grown, tuple(fitting), refused)


def _stored_or_begun(file: Path, study: StoredStudy, folder: Path, add: bool) -> SharedTable:
    """The table of the file; with `add` the study begins one that is not there."""
    if file.is_file():
        with reading(file, "Give the JSON file of a table that `study submit --add` wrote."):
            return SharedTable.load(file)
    if add:
        return begin_table(study.title or study.name, study.runs, folder)
    raise InputError(f"There is no {str(file)!r}. With --add the study begins one.")
