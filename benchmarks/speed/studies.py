"""What a study of thousands of runs costs beside its training: looking at it, keeping its table.

The runs are simulated: a few are trained, and the others are these with other seeds and results.
`studies-part` measures in processes of its own, whose memory is theirs.
"""

from __future__ import annotations

import json as json_text
import os
import random
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from attnlab.lab.pages.write import report
from attnlab.lab.study import (
    Executor,
    Store,
    Study,
    planned_runs,
    run_study,
    show_study,
    study_status,
)
from attnlab.lab.study.grid import PlannedRun
from attnlab.lab.study.plan import write_plan
from attnlab.lab.study.run import study_jobs
from attnlab.lab.study.worker import Job, Outcome, work
from attnlab.results import StoredRun
from attnlab.results.digest import SETTLED
from attnlab.results.manifest import write_manifest
from attnlab.results.study import RunEntry
from benchmarks._common import Table, child, write_json

Part = Literal["first look", "status", "show", "report", "coordinator"]
PARTS: tuple[Part, ...] = ("first look", "status", "show", "report", "coordinator")
"""The first look at runs that were copied makes their digests; runs that were trained have them."""
ROWS = 20
_TEMPLATES = ("none", "se", "asr:se")
_WRITTEN = ("config.json", "identity.json", "metrics.jsonl", "result.json", "manifest.json")


def simulated_study(runs: int) -> Study:
    """A study of `runs` runs: twenty rows, as many seeds as that makes."""
    gates: list[dict[str, object]] = [{"gate": "none", "label": "plain"}]
    for number in range(ROWS - 1):
        gate = _TEMPLATES[1 + number % 2]
        gates.append(
            {"gate": gate, "label": f"{gate} {number}", "options": {"reduction": 2 + number}}
        )
    return Study(
        name="many",
        data={"name": "digits", "train_subset": 100, "test_subset": 50},
        backbone="resnet20",
        attention=gates,
        seeds=max(1, runs // ROWS),
        threads=1,
        recipe={"name": "digits", "epochs": 3, "batch_size": 50},
        measure={"inference_images": 0},
    )


def simulate_runs(study: Study, out: Path) -> None:
    """Write every run of `study` to `out`, each as if it were trained and measured."""
    store = Store(out)
    runs = planned_runs(study)
    entries = store.entries(runs)
    out.mkdir(parents=True)
    templates: dict[str, Path] = {}
    numbers = random.Random(0)
    for job, run, entry in zip(study_jobs(store, study, entries), runs, entries, strict=True):
        gate = run.config.attention
        if gate not in templates:
            outcome = work(job)
            assert outcome.status == "done", outcome.message
            templates[gate] = Path(job.directory)
        else:
            _copy(templates[gate], out / entry.folder, run, entry, numbers)
    time.sleep(2 * SETTLED)


def _copy(
    template: Path, folder: Path, run: PlannedRun, entry: RunEntry, numbers: random.Random
) -> None:
    unlike = shutil.ignore_patterns(*_WRITTEN, "digest.json", ".*lock", "checkpoints")
    # One copy of the weights and measurements on the disk, which many runs share.
    shutil.copytree(template, folder, copy_function=os.link, ignore=unlike)
    (folder / "config.json").write_text(run.config.to_json() + "\n")
    (folder / "identity.json").write_text(run.identity.model_dump_json(indent=1) + "\n")
    stored = StoredRun(template)
    result = stored.result
    value = 0.9 + numbers.gauss(0, 0.01)
    values = {**result.values, result.metric.name: value}
    changed = {"run_id": entry.run_id, "label": run.config.label, "values": values}
    result = result.model_copy(update={**changed, "best_value": value + 0.005})
    (folder / "result.json").write_text(result.model_dump_json())
    *before, last = stored.history
    history = [*before, last.with_more({"test": values})]
    (folder / "metrics.jsonl").write_text("".join(record.to_line() for record in history))
    write_manifest(folder, entry.run_id)


@dataclass
class Arriving(Executor):
    """Puts prepared runs in their place, as if they were trained elsewhere."""

    prepared: Path

    def describe(self) -> str:
        return "nowhere"

    def execute(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        for job in jobs:
            os.rename(self.prepared / Path(job.directory).name, job.directory)
            yield Outcome(job, "done")


def _report(study: Study, out: Path) -> None:
    report(out, out / "page.html", study.name)


def _coordinate(study: Study, out: Path) -> None:
    prepared = out.with_name("prepared")
    prepared.mkdir()
    for entry in Store(out).entries(planned_runs(study)):
        os.rename(out / entry.folder, prepared / entry.folder)
    began = time.process_time()
    run_study(study, out, Arriving(prepared))
    print(f"run_study alone: {time.process_time() - began:.2f} CPU s")


_DONE: dict[Part, Callable[[Study, Path], object]] = {
    "first look": study_status,
    "status": study_status,
    "show": show_study,
    "report": _report,
    "coordinator": _coordinate,
}


def studies_part(
    part: tyro.conf.Positional[Part], runs: int, out: Path, json: Path = Path("part.json")
) -> None:
    """Do one thing with a simulated study in this process; `studies` starts it with each.

    Args:
        part: what to do.
        runs: how many runs the study has.
        out: the folder of the runs.
        json: where CPU seconds, memory in MiB and the size of the page are written.
    """
    imports = time.process_time()
    study = simulated_study(runs)
    began = time.process_time()
    _DONE[part](study, out)
    taken = time.process_time() - began
    # Not ru_maxrss, which a process inherits from the one that started it.
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    memory = int(found[1]) / 1024 if found else float("nan")
    page = out / "page.html"
    size = page.stat().st_size if page.exists() else 0
    write_json(json, {"seconds": taken, "imports": imports, "memory": memory, "page": size})


def studies(
    runs: tuple[int, ...] = (100, 400, 2000), folder: Path | None = None, json: Path | None = None
) -> None:
    """CPU seconds and memory of `study status`, `study show`, `report` and of
    the process that keeps the table while runs end.

    Args:
        runs: numbers of runs of the simulated studies.
        folder: where they are written; a temporary one if left out.
        json: where the figures are written.
    """
    found: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for number in runs:
            out = (folder or Path(temporary)) / f"runs-{number}" / "runs"
            study = simulated_study(number)
            simulate_runs(study, out)
            write_plan(Store(out), study)
            found[str(number)] = {
                part: child(
                    "speed",
                    *("studies-part", part, "--runs", number, "--out", out),
                    environment=os.environ,
                )
                for part in PARTS
            }
            shutil.rmtree(out.parent)
    _table(found).print()
    if json is not None:
        write_json(json, {"studies": found})
    else:
        print(json_text.dumps(found))


def _table(found: dict[str, dict[str, dict[str, float]]]) -> Table:
    rows = [
        [
            number,
            part,
            f"{each['seconds']:.2f}",
            f"{each['imports']:.2f}",
            f"{each['memory']:.0f}",
            f"{each['page'] / 1e6:.2f}" if part == "report" else "",
        ]
        for number, parts in found.items()
        for part, each in parts.items()
    ]
    columns = ["runs", "what", "CPU s", "imports, CPU s", "memory, MiB", "page, MB"]
    return Table("A study of many runs, beside its training", columns, rows)
