"""A run that is trained, as the table of its study sees it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from attnlab.instruments.stiffness import StiffnessResult
from attnlab.lab.study.looking import row_key
from attnlab.results import RunResult, StoredRun
from attnlab.results.study import RunEntry, StudyCell
from attnlab.surgery.folding import FoldReceipt


@dataclass(frozen=True)
class FinishedRun:
    """A trained run with what the table takes of it."""

    entry: RunEntry
    run: StoredRun

    @property
    def result(self) -> RunResult:
        return self.run.result

    @cached_property
    def key(self) -> str:
        """What tells its row from others, whatever the label."""
        return row_key(self.entry)

    @cached_property
    def fold(self) -> FoldReceipt | None:
        """What folding its network did; None if its gates do not fold."""
        return self.run.slim_result(FoldReceipt)

    @cached_property
    def tns(self) -> float | None:
        """Its total stiffness; None if that was not measured or has no value."""
        found = self.run.slim_result(StiffnessResult)
        return None if found is None or math.isnan(found.tns) else found.tns


Finished = dict[StudyCell, dict[int, FinishedRun]]
"""By the place in the table and the seed."""
