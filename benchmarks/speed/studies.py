"""What a study of thousands of runs costs beside its training: looking at it, keeping its table.

The runs are simulated: a few are trained, and the others are these with other seeds and results.
The commands are timed as a shell would start them; `studies-part` measures what plans a study or
keeps its table, in processes of its own, whose memory is theirs.
"""

from __future__ import annotations

import json as json_text
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

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

Part = Literal["first look", "status, planned again", "show, planned again", "coordinator"]
PARTS: tuple[Part, ...] = (
    "first look",
    "status, planned again",
    "show, planned again",
    "coordinator",
)
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
    "status, planned again": study_status,
    "show, planned again": show_study,
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
    write_json(json, {"seconds": taken, "imports": imports, "memory": memory, "page": 0})


_WATCHED = """
import json, resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))
"""
"""Between this process and a command, because the largest memory of a process is at least that of
the one that started it."""


def _commanded(name: str, out: Path) -> dict[str, dict[str, float]]:
    """CPU seconds, imports included, and memory in MiB of the commands that look at a study."""
    page = out.parent / "page.html"
    commands = {
        "status --as-planned": ("study", "status", name, "--as-planned", "--out", str(out)),
        "show --as-planned": ("study", "show", name, "--as-planned", "--out", str(out)),
        "report": ("report", str(out), "--study", name, "-o", str(page)),
    }
    found = {}
    for label, words in commands.items():
        command = [sys.executable, "-c", "from attnlab.cli import main; main()", *words]
        done = subprocess.run(
            [sys.executable, "-c", _WATCHED, *command], check=True, capture_output=True, text=True
        )
        seconds, memory = json_text.loads(done.stdout)
        size = page.stat().st_size if label == "report" else 0
        found[label] = {"seconds": seconds, "imports": 0.0, "memory": memory, "page": size}
    return found


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
            found[str(number)] = {part: _part(part, number, out) for part in PARTS[:-1]}
            found[str(number)] |= _commanded(study.name, out)
            found[str(number)]["coordinator"] = _part("coordinator", number, out)
            shutil.rmtree(out.parent)
    _table(found).print()
    if json is not None:
        write_json(json, {"studies": found})
    else:
        print(json_text.dumps(found))


def _part(part: Part, number: int, out: Path) -> dict[str, float]:
    arguments = ("studies-part", part, "--runs", number, "--out", out)
    return child("speed", *arguments, environment=os.environ)


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
