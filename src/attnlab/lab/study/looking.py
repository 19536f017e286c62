"""What had been seen when a study was planned, and what that costs.

Looking is a property of runs, not of a study's name: a difference of two runs that were both
finished before a plan existed counts as seen by whoever made that plan. From that follows, for each
row of a group, whether its number of seeds was fixed beforehand, and whether it was itself added
after a look. docs/explanation/looking.md derives the prices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from attnlab.results.identity import run_id_of
from attnlab.results.study import PlanRecord, RunEntry

Pair = tuple[str, int]
"""A difference: which row it is of, by `row_key`, and its seed."""


def row_key(entry: RunEntry) -> str:
    """Return what tells the row of a run from others, whatever its label: what it is made from
    without the seed."""
    settings = entry.identity.get("settings")
    if not isinstance(settings, Mapping):
        return f"{entry.cell.group} {entry.cell.row}"
    others = {name: value for name, value in settings.items() if name != "seed"}
    return run_id_of({**entry.identity, "settings": others})


def share_of(batch: int) -> float:
    """The share of the error rate that rows have together which were added after the same look: all
    of it for those that were planned beforehand, then 1/2, 1/6, 1/12 and so on, which add up to 1
    however often rows are added."""
    return 1.0 if batch == 0 else 1 / (batch * (batch + 1))


@dataclass(frozen=True)
class Looks:
    """What had been seen of one group when its rows and seeds were planned."""

    batches: dict[str, int]
    """By row: 0 if it was planned beforehand, else after which look it was added, from 1."""
    extended: tuple[tuple[PlanRecord, tuple[int, ...]], ...] = ()
    """The plans that added seeds after a look, with these."""
    added: tuple[tuple[PlanRecord, tuple[RunEntry, ...]], ...] = ()
    """The plans that added rows after a look, with a run of each."""
    unknown: dict[str, float] = field(default_factory=dict)
    """Rows with differences that were finished before the first plan that has them, by when the
    first one was: how they came about is not known."""
    gone: dict[str, tuple[RunEntry, ...]] = field(default_factory=dict)
    """Finished runs of rows that were compared with the same baseline and are not planned now."""

    @property
    def strictly(self) -> dict[str, int]:
        """The batches if each row of unknown origin had been added after a look at those that were
        finished before it: the most that can have happened."""
        order = {key: place for place, key in enumerate(sorted(self.unknown, key=self._finished))}
        later = max(0, len(order) - 1)
        return {key: order.get(key, batch + later) for key, batch in self.batches.items()}

    def _finished(self, key: str) -> tuple[float, str]:
        return self.unknown[key], key


class _Group:
    """Goes through the plans of a study in their order, for the runs that are compared with one
    baseline."""

    def __init__(self, baseline: Mapping[int, str], finished: Mapping[str, float]) -> None:
        self.baseline, self.finished = baseline, finished
        self.entries: dict[Pair, RunEntry] = {}
        self.batches: dict[str, int] = {}
        self.unknown: dict[str, float] = {}
        self.extended: list[tuple[PlanRecord, tuple[int, ...]]] = []
        self.added: list[tuple[PlanRecord, tuple[RunEntry, ...]]] = []

    def pairs(self, runs: Iterable[RunEntry]) -> dict[Pair, RunEntry]:
        """The runs of a plan that are compared with the baseline."""
        own = list(runs)
        groups = {e.cell.group for e in own if self.baseline.get(e.seed) == e.folder}
        return {
            (row_key(entry), entry.seed): entry
            for entry in own
            if entry.cell.group in groups
            and entry.seed in self.baseline
            and self.baseline[entry.seed] != entry.folder
        }

    def when(self, entry: RunEntry) -> float:
        """When the difference of a run to the baseline was there; infinity if it is not."""
        never = float("inf")
        both = (entry.folder, self.baseline[entry.seed])
        return max(self.finished.get(folder, never) for folder in both)

    def plan(self, plan: PlanRecord) -> None:
        """Take in one more plan."""
        pairs = self.pairs(plan.runs)
        new = {pair: entry for pair, entry in pairs.items() if pair not in self.entries}
        known = {**self.entries, **pairs}
        looked = any(self.when(entry) < plan.time for entry in known.values())
        rows = {key: entry for (key, _), entry in new.items() if key not in self.batches}
        for key in rows:
            first = min(self.when(entry) for (row, _), entry in new.items() if row == key)
            if first < plan.time:  # under another name, or in another folder
                self.unknown[key] = first
        fresh = {key: entry for key, entry in rows.items() if key not in self.unknown}
        if looked:
            # Seeds of a row that was there, or of which others had been seen elsewhere.
            old = (self.batches.keys() | self.unknown.keys()) - fresh.keys()
            unseen = {pair for pair, entry in new.items() if self.when(entry) >= plan.time}
            seeds = tuple(sorted({seed for key, seed in unseen if key in old}))
            self.extended += [(plan, seeds)] if seeds else []
            self.added += [(plan, tuple(fresh.values()))] if fresh else []
        batch = len(self.added) if looked else 0
        self.batches |= {key: batch if key in fresh else 0 for key in rows}
        self.entries = known


def looks_at(
    baseline: Mapping[int, str],
    plans: Sequence[PlanRecord],
    finished: Mapping[str, float],
) -> Looks:
    """Count the looks at one group of the last of `plans`.

    `baseline` are the folders of the runs that the others are compared with, by seed; `finished`
    says when each run ended, by folder.
    """
    group = _Group(baseline, finished)
    for plan in plans:
        group.plan(plan)
    present = {key for key, _ in group.pairs(plans[-1].runs)} if plans else set()
    gone: dict[str, list[RunEntry]] = {}
    for (key, _), entry in group.entries.items():
        if key not in present and group.when(entry) < float("inf"):
            gone.setdefault(key, []).append(entry)
    return Looks(
        batches=group.batches,
        extended=tuple(group.extended),
        added=tuple(group.added),
        unknown={key: when for key, when in group.unknown.items() if key in present},
        gone={key: tuple(runs) for key, runs in gone.items()},
    )


def compared_elsewhere(
    baseline: Mapping[int, str],
    present: Iterable[RunEntry],
    others: Mapping[str, Sequence[PlanRecord]],
    finished: Mapping[str, float],
) -> Iterator[tuple[str, list[RunEntry]]]:
    """Find, by the name of another study, the finished runs that it compared with the same baseline
    and that are not in this study."""
    folders = {entry.folder for entry in present}
    for name, plans in others.items():
        group = _Group(baseline, finished)
        found = {
            entry.folder: entry
            for plan in plans
            for entry in group.pairs(plan.runs).values()
            if entry.folder not in folders and group.when(entry) < float("inf")
        }
        if found:
            yield name, list(found.values())
