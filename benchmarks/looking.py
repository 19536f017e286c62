"""How often a study ever calls a module better or worse that does nothing, if rows are added one by
one until one is shown: `python -m benchmarks.looking`.

Each simulated laboratory has a folder of runs, written as training would write them, plans its
study as `attnlab study run` does and looks at it as `attnlab study show` does. Nothing is trained.
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import tyro

from attnlab.lab.statistics.paired import judge_differences, paired_difference
from attnlab.lab.study import Store, Study
from attnlab.lab.study.plan import present
from attnlab.lab.study.table import study_table
from attnlab.results import Metric, RunResult
from attnlab.results.damage import sealed
from attnlab.results.identity import FILE as IDENTITY
from attnlab.results.manifest import FILE as MANIFEST
from attnlab.results.manifest import Manifest, digest
from attnlab.results.study import (
    PlanRecord,
    RunEntry,
    StoredStudy,
    add_plan,
    read_plans,
    write_study,
)

TOP1 = Metric(name="top1", label="top-1", unit="%", scale=100)
DAY = 86_400.0


def studies(rows: int, seeds: int, out: Path) -> list[StoredStudy]:
    """The study with one row more each time."""
    gates = [
        {"gate": "se", "label": f"row {n}", "options": {"reduction": n}} for n in range(1, 1 + rows)
    ]
    return [
        present(
            Store(out),
            Study(
                name="added",
                data={"name": "digits", "train_subset": 100, "test_subset": 50},
                backbone="resnet20",
                attention=["none", *gates[:number]],
                seeds=seeds,
                recipe={"name": "digits", "epochs": 2},
                measure={"images": 0, "inference_images": 0},
            ),
        )
        for number in range(1, 1 + rows)
    ]


def write_run(out: Path, entry: RunEntry, value: float, finished: float) -> None:
    """The folder of a run whose result is `value`."""
    folder = out / entry.folder
    folder.mkdir()
    result = RunResult(
        run_id=entry.run_id,
        label=str(entry),
        epochs=1,
        metrics=(TOP1,),
        values={"top1": value},
        best_value=value,
        best_epoch=1,
        train_loss=1.0,
        parameters=1,
        macs=1,
        train_images_per_second=1.0,
        data_share=0.0,
        seconds=1.0,
    )
    (folder / "result.json").write_text(result.model_dump_json())
    (folder / IDENTITY).write_text(json.dumps(entry.identity))
    files = {name: digest(folder / name) for name in ("result.json", IDENTITY)}
    manifest = Manifest(run_id=entry.run_id, finished=finished, files=files)
    (folder / MANIFEST).write_text(sealed(manifest.model_dump(mode="json")))


def first_false(
    planned: list[StoredStudy], out: Path, draw: np.random.Generator
) -> tuple[int, int]:
    """After how many rows a verdict is shown, by the study and by Holm's correction over the rows
    that are there; one more than there are rows if it never is."""
    store, values = Store(out), {}
    directory = store.study_directory("added")
    directory.mkdir(parents=True)
    now, never = time.time(), len(planned) + 1
    by_study = by_holm = never
    for number, study in enumerate(planned, 1):
        # A day between two plans; runs are finished at noon.
        when = now - (never - number) * DAY
        add_plan(directory, PlanRecord(when, study.seeds, study.runs, ()))
        write_study(directory, replace(study, plans_end=read_plans(directory).end))
        for entry in study.runs:
            if entry.folder not in values:
                values[entry.folder] = 0.9 + 0.01 * draw.normal()
                write_run(out, entry, values[entry.folder], when + DAY / 2)
        by_row: dict[str, dict[int, float]] = {}
        for entry in study.runs:
            by_row.setdefault(entry.cell.row, {})[entry.seed] = values[entry.folder]
        plain = by_row.pop("plain")
        holm = judge_differences({r: paired_difference(v, plain) for r, v in by_row.items()})
        if any(each.verdict in ("better", "worse") for each in holm.values()):
            by_holm = min(by_holm, number)
        rows = study_table(store, study).groups[0].rows
        found = [row.comparison.verdict for row in rows if row.comparison is not None]
        if any(verdict in ("better", "worse") for verdict in found):
            by_study = min(by_study, number)
    return by_study, by_holm


def main(laboratories: int = 400, rows: int = 10, seeds: int = 5, seed: int = 0) -> None:
    """Simulate laboratories that add rows which do nothing until one is shown.

    Args:
        laboratories: how many.
        rows: how many rows each of them adds at most, one after each look.
        seeds: of every row.
        seed: of the random numbers.
    """
    draw = np.random.default_rng(seed)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        planned = studies(rows, seeds, Path(folder) / "none")
        for number in range(laboratories):
            out = Path(folder) / str(number)
            found.append(first_false(planned, out, draw))
    print(f"{laboratories} laboratories, {rows} rows added one by one, {seeds} seeds")
    for name, column in (("Holm over the rows that are there", 1), ("attnlab study show", 0)):
        first = np.array([each[column] for each in found])
        for most in (1, rows):
            share = (first <= most).mean()
            error = (share * (1 - share) / laboratories) ** 0.5
            words = "at the first look" if most == 1 else "ever"
            print(f"{name:34} {words:18} {100 * share:5.2f} ± {100 * error:.2f} %")


if __name__ == "__main__":
    tyro.cli(main)
