"""What a reader must know before believing the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from attnlab.report.parts import Chip
from attnlab.report.read import StudyRecord
from attnlab.report.standing import plain_row, standing_of
from attnlab.report.verdict import baseline_gap, short_commit
from attnlab.study.statistics import Comparison, compare, paired_difference
from attnlab.study.table import Group


def alerts(record: StudyRecord) -> list[Chip]:
    """Bad ones first."""
    found = [
        *_failures(record),
        *_missing(record),
        *_baselines(record),
        *_best_epoch(record),
        *_correction(record),
        *_mixed(record),
        *_notes(record),
    ]
    order = {"bad": 0, "warn": 1, "neutral": 2, "good": 3}
    return sorted(found, key=lambda chip: order[chip.tone])


def _failures(record: StudyRecord) -> Iterator[Chip]:
    """One per reason, however many runs have it."""
    reasons: dict[str, list[str]] = {}
    for run in record.failed:
        reasons.setdefault(run.failure.splitlines()[0], []).append(str(run.planned))
    for reason, runs in reasons.items():
        if len(runs) == 1:
            yield Chip(f"{runs[0]} failed.", "bad", reason)
        else:
            yield Chip(f"{len(runs)} runs failed.", "bad", f"{reason} {_listed(runs)}.")


def _listed(names: Sequence[str], most: int = 4) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def _missing(record: StudyRecord) -> Iterator[Chip]:
    for group in record.table.groups:
        rows = [row for row in group.rows if row.missing]
        seeds = "; ".join(f"{row.label} {', '.join(map(str, row.missing))}" for row in rows)
        if rows:
            yield Chip(
                f"{record.name_of(group)}: seeds are missing.",
                "warn",
                f"{seeds}. Means and intervals are over the others; a pair needs both runs of a "
                f"seed.",
            )


def _baselines(record: StudyRecord) -> Iterator[Chip]:
    for group in record.table.groups:
        found = baseline_gap(group)
        if found is not None and found[1]:
            yield Chip(
                f"Weak baseline on {record.name_of(group)}: {-found[0]:.1f} pt under reference.",
                "warn",
                "Gains over a weak baseline tend to vanish when it is trained well.",
            )


def _best_epoch(record: StudyRecord) -> Iterator[Chip]:
    gaps = [100 * (r.result.best_top1 - r.result.top1) for r in record.finished if r.result]
    if not gaps:
        return
    changed = []
    for group in record.table.groups:
        best = _compared_by_best_epoch(record, group)
        for row in group.rows:
            if row.comparison is None or row.label not in best:
                continue
            if best[row.label].verdict != row.comparison.verdict:
                changed.append(f"{row.label} on {record.name_of(group)}")
    effect = f" It would change the verdict on {', '.join(changed)}." if changed else ""
    yield Chip(
        "Results are of the last epoch.",
        "warn" if changed else "neutral",
        f"Choosing the best epoch by test accuracy would add {sum(gaps) / len(gaps):.2f} pt on "
        f"average, to the plain backbone as well.{effect}",
    )


def _compared_by_best_epoch(record: StudyRecord, group: Group) -> dict[str, Comparison]:
    plain = plain_row(group)
    if plain is None:
        return {}
    best = {
        row.label: {
            r.seed: 100 * r.result.best_top1 for r in record.of(group, row.label) if r.result
        }
        for row in group.rows
    }
    base = best[plain.label]
    return compare(
        {
            label: paired_difference(own, base)
            for label, own in best.items()
            if label != plain.label and own.keys() & base.keys()
        }
    )


def _correction(record: StudyRecord) -> Iterator[Chip]:
    for group in record.table.groups:
        rows = [row for row in group.rows if row.comparison is not None]
        only = [
            row.label
            for row in rows
            if row.comparison and standing_of(row.comparison) == "before correction only"
        ]
        if only:
            yield Chip(
                f"{record.name_of(group)}: {', '.join(only)} not significant after Holm.",
                "neutral",
                f"The own 95 % interval leaves out zero, but with {len(rows)} modules tested side "
                f"by side that happens by chance too often to be called a gain or a loss.",
            )
        for row in rows:
            if row.comparison and row.comparison.difference.note:
                note = row.comparison.difference.note
                yield Chip(f"{record.name_of(group)}, {row.label}:", "warn", f"{note}.")


def _mixed(record: StudyRecord) -> Iterator[Chip]:
    for key, what in (
        ("processor", "processors"),
        ("commit", "commits"),
        ("threads", "thread counts"),
    ):
        values = {str(run.environment.get(key)) for run in record.finished if run.environment}
        if len(values) > 1:
            shown = sorted(short_commit(value) if key == "commit" else value for value in values)
            yield Chip(
                f"Runs come from {len(values)} {what}.",
                "warn",
                f"{', '.join(shown)}. Speeds are not comparable, and pairs only nearly.",
            )
    speeds = [run for run in record.finished if run.result]
    if speeds:
        yield Chip(
            "Latency is each run's own, timed after its training.",
            "neutral",
            "It is no better than the machine was quiet; a ratio to rely on is measured in one "
            "process, interleaved.",
        )


def _notes(record: StudyRecord) -> Iterator[Chip]:
    """Notes of the runs, each once: conventions of NSI, folds that did not happen."""
    count = Counter(note for run in record.finished if run.result for note in run.result.notes)
    for note, number in count.items():
        yield Chip(f"In {number} of {len(record.finished)} runs:", "neutral", note)
    for note in record.table.notes:
        if "runs are finished" not in note:
            yield Chip(f"{note[0].upper()}{note[1:]}.", "warn")
