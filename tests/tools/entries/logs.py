"""Verdicts for results that others made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.comparison import logs
from tests.tools.entries.shared import picked
from tests.tools.entries.statistics import DIFFERENCE

import attnlab

if TYPE_CHECKING:
    from attnlab.lab.comparison.result import ComparisonResult
    from attnlab.results.table import StudyRow


def shown(found: ComparisonResult) -> dict[str, object]:
    """A comparison; `found` has a table and runs."""
    table, runs = found.judged, found.runs
    return {
        "runs": [picked(run, "row seed values") for run in runs],
        "seeds_needed": found.seeds_needed,
        "rows": [_row(row) for group in table.groups for row in group.rows],
    }


def _row(row: StudyRow) -> dict[str, object]:
    shown = picked(row, "label plain seeds values by_seed")
    comparison = row.comparison
    if comparison is not None:
        shown |= picked(comparison, "adjusted_p verdict sequential low high p_value")
        shown["difference"] = picked(comparison.difference, DIFFERENCE)
    return shown


def ultralytics() -> object:
    files = logs.study(Path("runs"))
    return {
        at: shown(attnlab.compare(files, by="model", baseline="plain.yaml", at=at))
        for at in ("last", "best")
    }


def looked() -> object:
    files = logs.study(Path("runs"))
    return shown(attnlab.compare(files, by="model", baseline="plain.yaml", looked=True))


def lightning() -> object:
    values = {"plain": (0.71, 0.70, 0.73), "se": (0.74, 0.72, 0.74)}
    files = [
        logs.lightning(Path("logs"), f"{name}-{seed}", [0.1, value])
        for name, found in values.items()
        for seed, value in enumerate(found)
    ]
    return shown(attnlab.compare(files, "val_acc", baseline="plain", seed_pattern=r"-(\d+)$"))


def table() -> object:
    file = Path("results.csv")
    lines = ["model,seed,error"]
    lines += [f"plain,{seed},{9 - 0.1 * seed}" for seed in range(4)]
    lines += [f"se,{seed},{8.7 - 0.12 * seed}" for seed in range(4)]
    file.write_text("\n".join(lines) + "\n")
    return shown(attnlab.compare([file], "error", "model", baseline="plain"))
