"""What was found in logs that other programs wrote; the JSON file of `attnlab compare`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from attnlab.page.parts import Page
from attnlab.page.tables import Table
from attnlab.results.base import Number, Result
from attnlab.results.table import StudyTable
from attnlab.results.verdict import verdict_sentence


@dataclass(frozen=True)
class ComparedRun:
    """One log: where it is in the table, and the metric over its epochs."""

    file: str
    name: str
    row: str
    seed: int | None
    values: tuple[Number, ...]


@dataclass(frozen=True, kw_only=True)
class ComparisonResult(Result):
    """The rows with their verdicts, what they were made of, and what was left out."""

    FORMAT: ClassVar[str] = "attnlab compare 1"

    judged: StudyTable
    """One group: the rows that were found, the first compared with the others."""
    runs: tuple[ComparedRun, ...]
    left_out: tuple[tuple[str, str], ...]
    """(file, why)."""
    by: str
    """The field that names the rows."""
    seeds_needed: dict[str, int | None]
    """By row: how many paired seeds would show its difference with a probability of 80 %, if the
    true one is as seen; None beyond a thousand. Rows without a spread are not there."""
    command: str
    version: str
    date: str

    @property
    def verdict(self) -> str:
        """Which rows beat the baseline, in one sentence."""
        (group,) = self.judged.groups
        compared = {row.label: row.comparison for row in group.rows if row.comparison is not None}
        reasons = dict.fromkeys(each.note for each in compared.values() if each.note)
        verdicts = {row: {"the logs": each.verdict} for row, each in compared.items()}
        number = max(len(row.seeds) for row in group.rows)
        sentence = verdict_sentence(verdicts, group.backbone, number, list(reasons))
        return sentence.replace(" on the logs", "")

    def table(self) -> Table:
        """A line per row: its result, its difference with both intervals, and its verdict."""
        from attnlab.lab.comparison.columns import page_table

        return replace(page_table(self), caption=self.judged.title)

    def page(self) -> Page:
        """The page of the comparison."""
        from attnlab.lab.pages.compare_page import compare_page

        return compare_page(self)
