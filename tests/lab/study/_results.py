"""Results that nobody trained: what `attnlab study run` would write, with known numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tests.lab.study._small import small_study

from attnlab.lab.study import Store, Study
from attnlab.lab.study.grid import planned_runs
from attnlab.lab.study.plan import write_plan
from attnlab.results import Metric, RunResult
from attnlab.results.manifest import write_manifest

TOP1 = Metric(name="top1", label="top-1", unit="%", scale=100)


def finish(out: Path, study: Study, value: Callable[[str, int], float], **plan: Any) -> None:
    """Plan `study`, and write the results that training would have written."""
    store = Store(out)
    entries = write_plan(store, study, **plan).runs
    for entry, run in zip(entries, planned_runs(study), strict=True):
        directory = out / entry.folder
        if (directory / "result.json").is_file():
            continue
        result = RunResult(
            run_id=entry.run_id,
            label=str(entry),
            epochs=1,
            metrics=(TOP1,),
            values={"top1": value(entry.cell.row, entry.seed)},
            best_value=1.0,
            best_epoch=1,
            train_loss=1.0,
            parameters=1,
            macs=1,
            train_images_per_second=1.0,
            data_share=0.0,
            seconds=1.0,
        )
        directory.mkdir(parents=True)
        (directory / "result.json").write_text(result.model_dump_json())
        (directory / "identity.json").write_text(json.dumps(entry.identity))
        (directory / "config.json").write_text(run.config.to_json())
        write_manifest(directory, entry.run_id)


def noisy(row: str, seed: int) -> float:
    """SE is a little better, with a spread of a point; the others are as the plain network."""
    numbers = np.random.default_rng([seed, len(row)])
    return 0.9 + 0.01 * numbers.normal() + (0.012 if row == "se" else 0.0)


def study(seeds: int | list[int], rows: list[str] | None = None, **changes: Any) -> Study:
    return small_study(attention=rows or ["none", "se", "eca"], seeds=seeds, **changes)
