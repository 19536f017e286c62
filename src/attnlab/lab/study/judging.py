"""How the rows of a group are judged: differences to the plain backbone, claims to be as good.

Rows are corrected together for how many there are, those that were added after a look apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from attnlab.lab.statistics.equivalent import equivalence, judge
from attnlab.lab.statistics.paired import (
    Direction,
    judge_differences,
    paired_difference,
)
from attnlab.lab.study.claims import EquivalenceConfig
from attnlab.lab.study.finished import Finished
from attnlab.lab.study.history import History
from attnlab.lab.study.looking import Looks, row_key, share_of
from attnlab.lab.study.store import Store
from attnlab.results import Metric, RunResult
from attnlab.results.study import RunEntry, StoredStudy, StudyCell
from attnlab.results.table import (
    Comparison,
    Equivalence,
    PairedDifference,
)

_SEEN = (
    "runs had been seen before the first plan of this study, and the verdict depends on whether "
    "seeds or rows were added after a look, which is not known"
)


@dataclass(frozen=True)
class _Family:
    """The differences of a group's rows to the plain backbone, by `row_key`."""

    rows: dict[str, PairedDifference]
    labels: dict[str, str]
    gone: dict[str, PairedDifference]
    """Of rows that were planned before and are not any more."""
    elsewhere: dict[str, PairedDifference]
    """Of rows that other studies compared with the same runs."""
    better: Direction

    def judged(
        self, batches: dict[str, int], sequential: bool, also: dict[str, PairedDifference]
    ) -> dict[str, Comparison]:
        """The verdicts, if rows were added as `batches` say. Those of each batch are corrected
        among themselves, at their share of the error rate."""
        found: dict[str, Comparison] = {}
        for batch in sorted({batches.get(key, 0) for key in self.rows}):
            own, others = (
                {key: each for key, each in of.items() if batches.get(key, 0) == batch}
                for of in (self.rows, also)
            )
            found |= judge_differences(
                own,
                sequential=sequential or batch > 0,
                better=self.better,
                also=others,
                share=share_of(batch),
            )
        return found


@dataclass(frozen=True)
class RowJudge:
    """Compares the rows of one group by one metric."""

    cells: Sequence[StudyCell]
    metric: Metric
    finished: Finished
    history: History
    store: Store
    why: str
    """Why nothing can be told; empty if something can."""

    @property
    def _looks(self) -> Looks:
        return self.history.looks[self.cells[0].group]

    def comparisons(self, read: Callable[[RunResult], float]) -> dict[str, Comparison]:
        """Return the verdicts on the rows, by what is `read` of the results. Where rows had been
        seen before the study was planned, there is one only if it is the same whatever had
        happened before."""
        looks, family = self._looks, self._family(read)
        found = family.judged(looks.batches, self.history.sequential, family.gone)
        if looks.unknown:
            also = {**family.gone, **family.elsewhere}
            strictly = family.judged(looks.strictly, True, also)
            found = {key: _agreed(found[key], strictly[key]) for key in found}
        return {family.labels[key]: comparison for key, comparison in found.items()}

    def _family(self, read: Callable[[RunResult], float]) -> _Family:
        values: dict[str, dict[int, float]] = {}
        labels, plain = {}, {}
        for cell in self.cells:
            for seed, one in self.finished.get(cell, {}).items():
                value = self.metric.shown(read(one.result))
                if cell.plain:
                    plain[seed] = value
                else:
                    labels[one.key] = cell.row
                    values.setdefault(one.key, {})[seed] = value

        def of(runs: Iterable[RunEntry]) -> dict[str, PairedDifference]:
            found: dict[str, dict[int, float]] = {}
            for entry in runs:
                value = self.metric.shown(read(self.store.run(entry).result))
                found.setdefault(row_key(entry), {})[entry.seed] = value
            return _differences(found, plain, self.why)

        gone = (entry for runs in self._looks.gone.values() for entry in runs)
        others = self.history.elsewhere[self.cells[0].group]
        return _Family(
            rows=_differences(values, plain, self.why),
            labels=labels,
            gone=of(gone),
            elsewhere=of(entry for entry in others if row_key(entry) not in values),
            better=self.metric.better,
        )

    def equivalences(self, study: StoredStudy) -> dict[str, Equivalence]:
        """Compare the rows with the one that the study names; the plain backbone is among them,
        since a margin within which even that is as good shows nothing of attention.

        Rows that were added after a look have the same price as for differences: those of each look
        are corrected among themselves, at their share of the error rate, by tests that may be
        looked at.
        """
        found = study.definition.get("equivalence")
        if not found:
            return {}
        asked = EquivalenceConfig.model_validate(found)
        looks = self._looks
        values: dict[str, dict[int, float]] = {}
        batches: dict[str, int] = {}
        for cell in self.cells:
            runs = self.finished.get(cell, {})
            values[cell.row] = {s: self.metric.shown(one.result.value) for s, one in runs.items()}
            late = (looks.batches.get(one.key, 0) for one in runs.values())
            batches[cell.row] = max(late, default=0)
        other = values.get(asked.to, {})
        why = self.why or self.history.late_claim or _late_reference(asked.to, batches)

        tested = partial(_tested, other, asked, why)
        gone = self._gone_by_batch()
        judged: dict[str, Equivalence] = {}
        for batch in sorted(set(batches.values())):
            sequential = self.history.sequential or batch > 0
            rows = {row: own for row, own in values.items() if batches[row] == batch}
            also = tested(gone.get(batch, {}), sequential)
            judged |= judge(tested(rows, sequential), also=also, share=share_of(batch))
        return judged

    def _gone_by_batch(self) -> dict[int, dict[str, dict[int, float]]]:
        """The results of rows that are in the study no longer, by the look that showed them
        first."""
        gone: dict[int, dict[str, dict[int, float]]] = {}
        for key, entries in self._looks.gone.items():
            own = {e.seed: self.metric.shown(self.store.run(e).result.value) for e in entries}
            gone.setdefault(self._looks.batches.get(key, 0), {})[key] = own
        return gone


def _differences(
    by_row: Mapping[str, Mapping[int, float]], plain: Mapping[int, float], why: str
) -> dict[str, PairedDifference]:
    """The difference of every row that shares a seed with the plain network."""
    return {
        key: _difference(tuple(own.items()), tuple(plain.items()), why)
        for key, own in by_row.items()
        if own.keys() & plain.keys()
    }


def _agreed(mildly: Comparison, strictly: Comparison) -> Comparison:
    """The verdict that holds both if the study was planned beforehand and if it was not."""
    if mildly.verdict == strictly.verdict:
        return strictly
    difference = replace(strictly.difference, cannot_tell=_SEEN)
    return Comparison(difference, None, "cannot tell", strictly.sequential)


@lru_cache(maxsize=4096)
def _difference(
    own: tuple[tuple[int, float], ...], plain: tuple[tuple[int, float], ...], why: str
) -> PairedDifference:
    """A table grows by one run at a time, and the rows of the other runs stay as they are."""
    return paired_difference(dict(own), dict(plain), cannot_tell=why)


def _tested(
    other: Mapping[int, float],
    asked: EquivalenceConfig,
    why: str,
    by_row: Mapping[str, Mapping[int, float]],
    sequential: bool,
) -> dict[str, Equivalence]:
    """Every row that shares a seed with the `other`, compared with it."""
    return {
        row: _equivalence(tuple(own.items()), tuple(other.items()), asked, sequential, why)
        for row, own in by_row.items()
        if row != asked.to and own.keys() & other.keys()
    }


def _late_reference(row: str, batches: Mapping[str, int]) -> str:
    """Why nothing can be as good as a row that was added after a look: it may have been chosen by
    what the others had shown."""
    if not batches.get(row, 0):
        return ""
    return f"row {row} was added after a look, so what the others are to be as good as was as well"


@lru_cache(maxsize=4096)
def _equivalence(
    own: tuple[tuple[int, float], ...],
    other: tuple[tuple[int, float], ...],
    asked: EquivalenceConfig,
    sequential: bool,
    why: str,
) -> Equivalence:
    """Kept as differences are."""
    return equivalence(
        dict(own),
        dict(other),
        asked.margin,
        to=asked.to,
        sequential=sequential,
        cannot_tell=why,
    )
