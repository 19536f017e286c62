"""What a reader must know before believing the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from attnlab._words import listed
from attnlab.lab.pages.verdict import baseline_gap, short_commit
from attnlab.page.parts import Chip
from attnlab.results.record import StudyRecord


def plan_alerts(record: StudyRecord) -> list[Chip]:
    """Return what belongs beside the verdict: whether it is of one plan, one set of data, one
    version of what computed it, and of now."""
    table, found = record.table, []
    if not record.is_current:
        found.append(
            Chip(
                "The table is not of what is on disk now.",
                "bad",
                f"It was made when {len(table.finished)} of {table.planned} runs were finished; "
                f"now {len(record.finished)} of {len(record.runs)} are. "
                f"`{record.study.called.command('show')}` makes it anew.",
            )
        )
    for data, sums in checksums(record).items():
        if len(sums) > 1:
            found.append(
                Chip(
                    f"The runs on {data} saw {len(sums)} different sets of data.",
                    "bad",
                    f"Their checksums are {', '.join(each[:12] for each in sums)}. Rows and pairs "
                    f"mix them, so no verdict on {data} holds.",
                )
            )
    said = (*table.changes, *table.mixed)
    return [*found, *(Chip(_sentence(text), "warn") for text in said)]


def checksums(record: StudyRecord) -> dict[str, list[str]]:
    """Return the checksums of the data of the finished runs, by the label of the data."""
    found: dict[str, set[str]] = {}
    for run in record.finished:
        if run.stored.data is not None:
            found.setdefault(run.entry.cell.data, set()).add(run.stored.data.checksum)
    return {data: sorted(sums) for data, sums in found.items()}


def alerts(record: StudyRecord) -> list[Chip]:
    """Return every alert but those of `plan_alerts`, the bad ones first."""
    found = [
        *_failures(record),
        *_missing(record),
        *_baselines(record),
        *_best_epoch(record),
        *_correction(record),
        *_unknown(record),
        *_mixed(record),
        *_notes(record),
    ]
    order = {"bad": 0, "warn": 1, "neutral": 2, "good": 3}
    return sorted(found, key=lambda chip: order[chip.tone])


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _failures(record: StudyRecord) -> Iterator[Chip]:
    """One per reason, however many runs have it."""
    failures = ((run.failure.splitlines()[0], str(run.entry)) for run in record.failed)
    for reason, runs in _gathered(failures).items():
        if len(runs) == 1:
            yield Chip(f"{runs[0]} failed.", "bad", reason)
        else:
            yield Chip(f"{len(runs)} runs failed.", "bad", f"{reason} {listed(runs)}.")


def _gathered(pairs: Iterator[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


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
        gap = baseline_gap(group, record.metric)
        if gap is not None and gap.weak:
            yield Chip(
                f"Weak baseline on {record.name_of(group)}: {gap.text} reference.",
                "warn",
                "Gains over a weak baseline tend to vanish when it is trained well.",
            )


def _best_epoch(record: StudyRecord) -> Iterator[Chip]:
    rows = [(group, row) for group in record.table.groups for row in group.rows]
    gaps = [row.best_by_seed[seed] - row.by_seed[seed] for _, row in rows for seed in row.by_seed]
    if not gaps:
        return
    changed = [
        f"{row.label} on {record.name_of(group)}"
        for group, row in rows
        if row.comparison is not None and row.best_verdict not in (None, row.comparison.verdict)
    ]
    effect = f" It would change the verdict on {', '.join(changed)}." if changed else ""
    metric, mean, unit = record.metric, sum(gaps) / len(gaps), record.table.unit
    does, of = ("add", "to") if metric.better == "higher" else ("take off", "off")
    size = f"{abs(mean):.{metric.digits}f} {metric.difference_unit}".strip()
    yield Chip(
        f"Results are of the last {unit}.",
        "warn" if changed else "neutral",
        f"Choosing the best {unit} by {metric.label} of the test {metric.samples} would {does} "
        f"{size} on average, {of} the plain backbone as well.{effect}",
    )


def _correction(record: StudyRecord) -> Iterator[Chip]:
    for group in record.table.groups:
        compared = [(row.label, row.comparison) for row in group.rows if row.comparison]
        only = [name for name, c in compared if c.standing == "before correction only"]
        if only:
            yield Chip(
                f"{record.name_of(group)}: {', '.join(only)} not significant after Holm.",
                "neutral",
                f"Its own {record.level} interval leaves out zero, but with {len(compared)} "
                f"modules tested side by side that happens by chance too often to be called a gain "
                f"or a loss.",
            )


def _unknown(record: StudyRecord) -> Iterator[Chip]:
    """Why nothing can be told of some modules, each reason once in a group."""
    for group in record.table.groups:
        notes = (
            (row.comparison.note, row.label)
            for row in group.rows
            if row.comparison is not None and row.comparison.note
        )
        for note, rows in _gathered(notes).items():
            text = f"{record.name_of(group)}, {', '.join(rows)}: cannot tell."
            yield Chip(text, "warn", _sentence(note))


def _mixed(record: StudyRecord) -> Iterator[Chip]:
    environments = [run.stored.environment for run in record.finished if run.stored.environment]
    for what, found in (
        ("processors", [str(each.processor) for each in environments]),
        ("commits", [str(each.commit) for each in environments]),
        ("thread counts", [str(each.threads) for each in environments]),
    ):
        values = set(found)
        if len(values) > 1:
            shown = sorted(short_commit(each) if what == "commits" else each for each in values)
            yield Chip(
                f"Runs come from {len(values)} {what}.",
                "warn",
                f"{', '.join(shown)}. Speeds are not comparable, and pairs only roughly.",
            )
    for group in record.table.groups:
        if group.timed is not None and group.timed.busy:
            yield Chip(
                f"{record.name_of(group)}: times have wide intervals.",
                "warn",
                f"{_sentence(group.timed.busy)} "
                f"`{record.study.called.measure(record.study.name, 'speed')}` times the networks "
                f"again.",
            )


def _notes(record: StudyRecord) -> Iterator[Chip]:
    """Notes of the measurements, each once: conventions of NSI, folds that did not happen."""
    count = Counter(
        note
        for run in record.finished
        for note in dict.fromkeys(n for m in run.stored.noted.values() for n in m.notes)
    )
    for note, number in count.items():
        yield Chip(f"In {number} of {len(record.finished)} runs:", "neutral", note)
    for note in record.table.notes:
        if "runs are finished" not in note:
            yield Chip(_sentence(note), "warn")
