"""`attnlab.compare`: logs in, a table with verdicts out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from attnlab._errors import InputError, UnknownNameError, nearest, unknown_name
from attnlab.lab.comparison.direction import check_units, direction
from attnlab.lab.comparison.log import Log
from attnlab.lab.comparison.read import read_logs
from attnlab.lab.comparison.result import ComparedRun, ComparisonResult
from attnlab.lab.comparison.seeds import PlacedLog, place_log
from attnlab.lab.statistics.paired import (
    LEVEL,
    Direction,
    judge_differences,
    paired_difference,
    summarize,
    unpaired_difference,
)
from attnlab.lab.statistics.power import seeds_needed
from attnlab.results import Metric
from attnlab.results.table import Comparison, Group, PairedDifference, StudyRow, StudyTable

BASELINES = ("plain", "baseline", "none", "base")
"""Names of rows that are taken for the one that others are compared with."""


def compare(
    files: Iterable[str | Path],
    metric: str | None = None,
    by: str = "name",
    *,
    seed_from: str | None = None,
    seed_pattern: str | None = None,
    baseline: str | None = None,
    better: Direction | None = None,
    at: Literal["last", "best"] = "last",
    looked: bool = False,
    preset: str = "auto",
) -> ComparisonResult:
    """Compare trainings that any program logged, row by row with a baseline, over their seeds.

    Args:
        files: log files: Ultralytics' results.csv, Lightning's metrics.csv, Hugging Face's
            trainer_state.json, mmengine's scalars.json, MLflow's and W&B's exports, or CSV, TSV
            and JSON lines with a row per epoch or per run.
        metric: a column of them; may be left out where they are of Ultralytics.
        by: what names a row: a setting that lies beside the log, a column, or the run's "name".
            A seed in its text is taken out.
        seed_from: what holds the seed; "seed" where that is known, else the run's name.
        seed_pattern: a regular expression whose group is the seed, for names such as `cbam-3`.
        baseline: the row that the others are compared with; one that is called plain, baseline,
            base or none, unless given.
        better: which values are better; may be left out if the metric's name says it, such as
            accuracy or loss.
        at: the last value of a run, or its best one, which is optimistic.
        looked: whether seeds were added after results had been seen. Then verdicts are by the
            interval that stays right.
        preset: what wrote the files; "auto" looks at each.
    """
    _check(at, better)
    paths = [Path(file) for file in files]
    if not paths:
        raise InputError("Expected log files to compare but got none.")
    logs, left_out = read_logs(paths, preset, [by, seed_from or "seed"])
    if not logs:
        listed = "; ".join(f"{file} {why}" for file, why in left_out[:3])
        raise InputError(f"None of {len(paths)} files could be read: {listed}.")
    name = _metric_name(metric, logs, left_out)
    placed = []
    for log in logs:
        if name in log.columns:
            placed.append(place_log(log, by, seed_from, seed_pattern))
        else:
            left_out.append((log.file, f"has no numbers in a column {name!r} ({log.name})"))
    _check_twice(placed, by)
    shown = _metric(name, better, placed)
    rows = _by_row(placed)
    check_units(name, {row: [p.log.columns[name][-1] for p in own] for row, own in rows.items()})
    plain = _baseline(baseline, rows, by)
    table, needed = _table(shown, rows, plain, at, looked)
    notes = _notes(shown, better, at, placed, rows, plain, left_out)
    return ComparisonResult(
        judged=table,
        notes=tuple(notes),
        runs=tuple(
            ComparedRun(str(p.log.file), p.log.name, p.row, p.seed, tuple(p.log.columns[name]))
            for p in placed
        ),
        left_out=tuple((str(file), why) for file, why in left_out),
        by=by,
        seeds_needed=needed,
        command="",
        version=version("attnlab"),
        date=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    )


def _check(at: str, better: str | None) -> None:
    if at not in ("last", "best"):
        raise unknown_name("value of a run", at, ("last", "best"))
    if better not in (None, "higher", "lower"):
        raise unknown_name("direction", better, ("higher", "lower"))


def _metric_name(
    metric: str | None, logs: Sequence[Log], left_out: Sequence[tuple[Path, str]]
) -> str:
    """The column, which MLflow calls `metrics.x` and people `x`."""
    columns = dict.fromkeys(column for log in logs for column in log.columns)
    if metric is None:
        usual = next((c for c in columns if re.fullmatch(r"metrics/mAP50-95\(\w+\)", c)), None)
        if usual is None:
            raise InputError(
                f"Choose what is compared with metric=…, --metric on the command line. "
                f"{_found(logs, left_out)}"
            )
        return usual
    short = metric.removeprefix("metrics.")
    if metric not in columns and short not in columns:
        raise UnknownNameError(
            f"Unknown metric {metric!r}.{nearest(metric, columns)} {_found(logs, left_out)}"
        )
    return metric if metric in columns else short


def _found(logs: Sequence[Log], left_out: Sequence[tuple[Path, str]]) -> str:
    """What can be compared, file by file; files with the same columns are counted."""
    by_file: dict[Path, dict[str, None]] = {}
    for log in logs:
        by_file.setdefault(log.file, {}).update(dict.fromkeys(log.columns))
    alike: dict[tuple[str, ...], list[Path]] = {}
    for file, columns in by_file.items():
        alike.setdefault(tuple(columns), []).append(file)
    parts = []
    for names, (first, *others) in alike.items():
        more = f" and {len(others)} more" if others else ""
        parts.append(f"{', '.join(names) or 'none'} in {str(first)!r}{more}")
    unread = "".join(f" {str(file)!r} {why}." for file, why in left_out[:3])
    return f"Columns of numbers: {'; '.join(parts)}.{unread}"


def _check_twice(placed: Sequence[PlacedLog], by: str) -> None:
    seen: dict[tuple[str, int], Log] = {}
    for each in placed:
        if each.seed is None:
            continue
        other = seen.setdefault((each.row, each.seed), each.log)
        if other is not each.log:
            raise InputError(
                f"{str(other.file)!r} and {str(each.log.file)!r} are both {each.row!r} with seed "
                f"{each.seed}. Leave one of them out, or tell them apart with a --by other "
                f"than {by!r} or another --seed-from."
            )


def _metric(name: str, better: Direction | None, placed: Sequence[PlacedLog]) -> Metric:
    better = better or direction(name)
    if better is None:
        raise InputError(
            f"The name {name!r} does not say whether higher or lower values are better. Say it "
            f"with better='higher' or better='lower', --higher or --lower on the command line."
        )
    largest = max((abs(p.log.columns[name][-1]) for p in placed), default=0.0)
    slug = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    return Metric(
        name=slug if slug[:1].isalpha() else f"m_{slug}",
        label=name,
        better=better,
        digits=2 if largest > 2 else 4,  # shares are below one, percentages are not
    )


def _by_row(placed: Sequence[PlacedLog]) -> dict[str, list[PlacedLog]]:
    rows: dict[str, list[PlacedLog]] = {}
    for each in placed:
        rows.setdefault(each.row, []).append(each)
    for own in rows.values():
        own.sort(key=lambda each: -1 if each.seed is None else each.seed)
    return rows


def _unknown_baseline(given: str, rows: Mapping[str, object]) -> UnknownNameError:
    """Say what to do if the baseline's runs are there, each as a row of its own: a bare number at
    the end of a name is not taken for a seed, because `vit_b_16` has none."""
    error = unknown_name("baseline", given, rows)
    if any(re.fullmatch(rf"{re.escape(given)}[-_.]\d+", row) for row in rows):
        return UnknownNameError(
            f"{error} If the number at the end is the seed, say so: --seed-pattern '[-_.](\\d+)$'."
        )
    return error


def _baseline(given: str | None, rows: Mapping[str, object], by: str) -> str:
    if given is not None:
        if given not in rows:
            raise _unknown_baseline(given, rows)
        return given
    found = [row for row in rows if row.lower() in BASELINES]
    if len(found) == 1 and len(rows) > 1:
        return found[0]
    if len(rows) == 1:
        raise InputError(
            f"All runs are of one row, {next(iter(rows))!r}, so there is nothing to compare. "
            f"A --by other than {by!r} tells them apart."
        )
    raise InputError(
        f"Choose the row that the others are compared with: baseline=…, --baseline on the command "
        f"line. The rows are: {', '.join(rows)}."
    )


def _table(
    metric: Metric,
    rows: Mapping[str, Sequence[PlacedLog]],
    plain: str,
    at: str,
    looked: bool,
) -> tuple[StudyTable, dict[str, int | None]]:
    of = {kind: _values(metric, rows, kind) for kind in ("last", "best")}
    seeds = {row: [each.seed for each in own] for row, own in rows.items()}
    compared, by_best = (
        judge_differences(
            _differences(of[kind], seeds, plain), sequential=looked, better=metric.better
        )
        for kind in (at, "best")
    )
    found = [
        _row(metric, row, row == plain, seeds[row], of[at][row], of["best"][row], compared, by_best)
        for row in [plain, *(row for row in rows if row != plain)]
    ]
    every = sum(map(len, rows.values()))
    table = StudyTable(
        study="comparison",
        title=f"{metric.label} against {plain}",
        level=LEVEL,
        metrics=(metric,),
        groups=(Group("logs", "logs", plain, tuple(found)),),
        paper_source="",
        paper_note="",
        sequential=looked,
        planned=every,
    )
    return table, _needed(compared, looked)


def _values(
    metric: Metric, rows: Mapping[str, Sequence[PlacedLog]], at: str
) -> dict[str, list[float]]:
    """The last or the best value of every run, by row."""
    columns = {row: [each.log.columns[metric.label] for each in own] for row, own in rows.items()}
    return {
        row: [float(own[-1 if at == "last" else metric.best(own)]) for own in each]
        for row, each in columns.items()
    }


def _differences(
    values: Mapping[str, Sequence[float]],
    seeds: Mapping[str, Sequence[int | None]],
    plain: str,
) -> dict[str, PairedDifference]:
    """Paired where two seeds or more are shared."""
    found = {}
    for row, own in values.items():
        if row == plain:
            continue
        pairs = [dict(zip(seeds[each], values[each], strict=True)) for each in (row, plain)]
        shared = (pairs[0].keys() & pairs[1].keys()) - {None}
        if len(shared) > 1 or (shared and len(own) == len(values[plain]) == 1):
            mine, base = ({s: each[s] for s in shared if s is not None} for each in pairs)
            found[row] = paired_difference(mine, base)
        else:
            found[row] = unpaired_difference(own, values[plain])
    return found


def _row(
    metric: Metric,
    label: str,
    plain: bool,
    seeds: Sequence[int | None],
    values: Sequence[float],
    best: Sequence[float],
    compared: Mapping[str, Comparison],
    by_best: Mapping[str, Comparison],
) -> StudyRow:
    numbered = [n if seed is None else seed for n, seed in enumerate(seeds)]
    return StudyRow(
        label=label,
        plain=plain,
        seeds=tuple(numbered),
        missing=(),
        values={metric.name: summarize(values)},
        by_seed=dict(zip(numbered, values, strict=True)),
        best=summarize(best),
        best_by_seed=dict(zip(numbered, best, strict=True)),
        best_verdict=by_best[label].verdict if label in by_best else None,
        comparison=compared.get(label),
    )


def _needed(compared: Mapping[str, Comparison], looked: bool) -> dict[str, int | None]:
    found = {}
    for row, comparison in compared.items():
        difference = comparison.difference
        if difference.std and difference.mean:
            found[row] = seeds_needed(
                difference.mean, difference.std, 1 - (1 - LEVEL) / len(compared), sequential=looked
            )
    return found


def _notes(
    metric: Metric,
    better: str | None,
    at: str,
    placed: Sequence[PlacedLog],
    rows: Mapping[str, Sequence[PlacedLog]],
    plain: str,
    left_out: Sequence[object],
) -> list[str]:
    notes = []
    if left_out:
        notes.append(f"{len(left_out)} of {len(left_out) + len(placed)} logs are left out")
    if better is None:
        other = "lower" if metric.better == "higher" else "higher"
        notes.append(f"{metric.better} is better, by the name {metric.label!r}: --{other} if not")
    if at == "best":
        notes.append("the best value of each run was chosen by looking: it is optimistic")
    base = {each.seed for each in rows[plain]} - {None}
    for row, own in rows.items():
        seeds = {each.seed for each in own} - {None}
        shared = len(seeds & base)
        if row == plain:
            continue
        if shared < 2:
            why = "no seeds are known" if not seeds or not base else f"{shared} seeds are shared"
            notes.append(f"{row} is not paired with {plain} ({why}): Welch's interval, wider")
        elif shared < max(len(own), len(rows[plain])):
            notes.append(f"{row} is paired with {plain} over the {shared} seeds that both have")
    lengths = {len(each.log.columns[metric.label]) for each in placed}
    if len(lengths) > 1:
        most = max(lengths)
        short = [each for each in placed if len(each.log.columns[metric.label]) < most]
        first = short[0]
        notes.append(
            f"{len(short)} runs have fewer values than the {most} of the longest, such as "
            f"{first.log.name} with {len(first.log.columns[metric.label])}: unfinished runs do not "
            f"belong here"
        )
    return notes
