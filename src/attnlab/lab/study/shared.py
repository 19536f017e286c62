"""A table that grows by the rows of others: one plan, and for every row a run of every seed.

A row enters only if its runs are finished and whole, are made from the table's own settings, data
and threads but for the gate, have all of its seeds, and if their weights, tested anew, have the
result that is written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import ClassVar

from attnlab._errors import AttnlabError, InputError
from attnlab.instruments.stiffness.result import StiffnessResult
from attnlab.instruments.stripe.result import StripeResult
from attnlab.lab.statistics import judge_differences, paired_difference, summarize
from attnlab.lab.study.current import require_study
from attnlab.lab.study.store import Store
from attnlab.lab.training.evaluate import evaluate
from attnlab.page.tables import Cell, Table, number_cell
from attnlab.results import Metric, StoredRun
from attnlab.results.base import Number, Result
from attnlab.results.damage import read_object, reading
from attnlab.results.identity import FILE, Identity
from attnlab.results.study import RunEntry, read_study
from attnlab.results.table import Comparison
from attnlab.subject import open_run

OF_THE_GATE = ("attention", "gate_options", "where", "start", "place", "shared", "seed")
"""Settings in which the runs of a table may differ."""


@dataclass(frozen=True)
class SharedRun:
    """One run of a row."""

    seed: int
    run_id: str
    value: Number
    """As it is stored: top-1 is a share."""
    parameters: int
    macs: int | None
    tns: float | None
    """Total neural stiffness, where it was measured."""
    constancy: float | None
    """The median over gates of the spread across images relative to that across channels: 0 is a
    gate that does not depend on the image. None where there is no gate, or it was not measured."""


@dataclass(frozen=True)
class SharedRow:
    """One module: a run of every seed."""

    label: str
    plain: bool
    gate: dict[str, object]
    """Its settings, without the seed."""
    sources: dict[str, str]
    """Checksums of classes that are not attnlab's."""
    runs: tuple[SharedRun, ...]

    @property
    def ids(self) -> frozenset[str]:
        """Of its runs."""
        return frozenset(run.run_id for run in self.runs)

    def by_seed(self, metric: Metric) -> dict[int, float]:
        """The results in the metric's unit."""
        return {run.seed: metric.shown(run.value) for run in self.runs}


@dataclass(frozen=True, kw_only=True)
class SharedTable(Result):
    """Rows that were made by one plan, whoever made them."""

    FORMAT: ClassVar[str] = "attnlab shared table 1"

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
        """A line per row: result, difference by seed, and what it costs."""
        judged = self.judged()
        heads = ["module", self.metric.title, "Δ", "p (Holm)", "verdict"]
        heads += ["parameters", "MACs", "TNS", "constancy"]
        lines = [
            [*_result_cells(row, judged.get(row.label), self.metric), *_costs(row)]
            for row in self.rows
        ]
        return Table(heads, lines, self.title, names=1)


def _result_cells(row: SharedRow, judged: Comparison | None, metric: Metric) -> list[Cell]:
    summary = summarize(list(row.by_seed(metric).values()))
    cells = [Cell(row.label), Cell(summary.text(metric.digits), order=summary.mean)]
    if judged is None:
        return [*cells, Cell(""), Cell(""), Cell("")]
    found, interval = judged.difference, ""
    if found.low is not None and found.high is not None:
        interval = metric.interval_text(found.low, found.high)
    difference = Cell(metric.signed(found.mean), interval, order=found.mean)
    return [*cells, difference, number_cell(judged.adjusted_p, "{:.3f}"), Cell(judged.verdict)]


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
    table: SharedTable, entries: Sequence[RunEntry], out: Path, *, trust: bool = False
) -> SharedRow:
    """The row that these runs are; an error that says what does not fit where they do not."""
    label = entries[0].cell.row
    by_seed = {entry.seed: entry for entry in entries}
    missing = [seed for seed in table.seeds if seed not in by_seed]
    if missing:
        raise InputError(f"Expected runs of the seeds {list(table.seeds)}: {missing} are missing.")
    runs, gates, sources = [], [], []
    for seed in table.seeds:
        stored = by_seed[seed].stored_in(out)
        identity = _checked_identity(table, stored, seed)
        gates.append(_of_gate(identity.settings))
        sources.append(identity.sources)
        runs.append(_run(table, stored, seed, trust=trust))
    if any(each != gates[0] for each in gates) or any(each != sources[0] for each in sources):
        raise InputError("Expected one gate for all seeds but its settings or its source differ.")
    return SharedRow(label, entries[0].cell.plain, gates[0], sources[0], tuple(runs))


def with_row(table: SharedTable, row: SharedRow) -> SharedTable:
    """The table with one row more. A row that is there is never replaced."""
    for other in table.rows:
        if other.label != row.label and not other.ids.isdisjoint(row.ids):
            raise InputError(f"The same runs are in the table already, as {other.label!r}.")
        if other.label == row.label and other != row:
            raise InputError(
                f"The table has another row {row.label!r}, with the results "
                f"{[r.value for r in other.runs]}; these are {[r.value for r in row.runs]}. Give "
                f"yours another label. If its settings are the same, another processor or version "
                f"rounds differently, and rows of one table are only compared on one."
            )
        if other == row:
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
    own = identity.model_copy(update={"settings": _common(identity.settings), "sources": {}})
    if found := wanted.differences(own):
        raise InputError(f"It was not made by the table's plan: {'; '.join(found)}.")
    return identity


def _common(settings: Mapping[str, object]) -> dict[str, object]:
    return {name: each for name, each in settings.items() if name not in OF_THE_GATE}


def _of_gate(settings: Mapping[str, object]) -> dict[str, object]:
    return {name: settings[name] for name in OF_THE_GATE if name in settings and name != "seed"}


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
    ratios = [] if stripes is None else [s.ratio for s in stripes.sites if s.ratio is not None]
    return SharedRun(
        seed=seed,
        run_id=result.run_id,
        value=value,
        parameters=result.parameters,
        macs=result.macs,
        tns=None if stiff is None else stiff.tns,
        constancy=median(ratios) if ratios else None,
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
    folder, file = Path(out), Path(table)
    study = read_study(require_study(Store(folder.resolve()), name))
    if study.damage:
        raise InputError(study.damage)
    if file.is_file():
        with reading(file, "Give the JSON file of a table that `study submit --add` wrote."):
            grown = SharedTable.load(file)
    elif add:
        grown = begin_table(study.title or study.name, study.runs, folder)
    else:
        raise InputError(f"There is no {str(file)!r}. With --add the study begins one.")
    by_row: dict[str, list[RunEntry]] = {}
    for entry in study.runs:
        by_row.setdefault(entry.cell.row, []).append(entry)
    fitting, refused = [], {}
    for label, entries in by_row.items():
        try:
            grown = with_row(grown, check_row(grown, entries, folder, trust=trust))
            fitting.append(label)
        except AttnlabError as error:
            refused[label] = str(error)
    if add and fitting:
        grown.save(file)
    return Submitted(grown, tuple(fitting), refused)
