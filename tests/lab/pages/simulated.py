"""A study on disk that nobody ran: what `attnlab study run` would write, with known numbers.

The table is made here, by scipy's paired t-test and Holm's procedure written out, so that what the
page says is compared with something else than the study room.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from attnlab.instruments.stiffness.result import StepResult, StiffestStep, StiffnessResult
from attnlab.instruments.stripe import SiteStripe, StripeResult
from attnlab.results import Measured, Metric, RunResult, StoredRun
from attnlab.results.damage import sealed
from attnlab.results.manifest import write_manifest
from attnlab.results.speed import GroupSpeed, StudySpeed, TimedNetwork, write_speed
from attnlab.results.study import (
    PlanRecord,
    RunEntry,
    StoredStudy,
    StudyCell,
    StudyInvocation,
    add_plan,
    read_plans,
    write_study,
    write_table,
)
from attnlab.results.table import (
    Comparison,
    Group,
    PairedDifference,
    PaperFigure,
    StudyRow,
    StudyTable,
    Summary,
    Verdict,
)
from attnlab.surgery.folding import FoldReceipt

GATES = ("se", "step", "asr:se", "eca", "cbam", "srm", "fca", "sge", "ie")
GAINS = (0.45, 0.5, 0.42, 0.25, 0.24, 0.2, 0.04, 0.05, -0.05)
BLOCKS = [f"{stage}.{block}" for stage in (1, 2, 3) for block in range(3)]


@dataclass(frozen=True)
class Simulated:
    """A task as the report sees it: metrics, and what the plain backbone reaches on each data."""

    metrics: tuple[Metric, ...]
    base: Mapping[str, float]
    """By data; in the shown unit of the first metric."""
    unit: float = 1.0
    """How large a gain of 1, and the noise, are in that unit."""

    @property
    def sign(self) -> int:
        """+1 where more is better."""
        return 1 if self.metrics[0].better == "higher" else -1


TOP1 = Metric(name="top1", label="top-1", unit="%", scale=100)
CLASSIFICATION = Simulated(
    (
        TOP1,
        Metric(name="top5", label="top-5", unit="%", scale=100),
        Metric(name="loss", label="test loss", better="lower", digits=3),
    ),
    {"cifar10": 92.0, "cifar100": 68.0, "stl10": 84.0},
)
REGRESSION = Simulated(
    (
        Metric(name="mae", label="mean |error|", unit="mm", scale=1000, better="lower", digits=4),
        Metric(name="r2", label="R²", digits=3),
    ),
    {"faces": 0.31},
    0.02,
)


@dataclass(frozen=True)
class Plan:
    """What happened to the study; see `attnlab.lab.study.history` for the words."""

    sequential: bool = False
    changes: tuple[str, ...] = ()
    seeds: tuple[tuple[int, ...], ...] = ()
    """Of earlier plans, whose runs had been seen."""
    cannot_tell: str = ""
    stale: Mapping[str, tuple[str, ...]] | None = None
    """By row."""


def simulate(
    out: Path,
    *,
    name: str = "cifar-attention-v1",
    task: Simulated = CLASSIFICATION,
    data: Sequence[str] = ("cifar10", "cifar100", "stl10"),
    gains: Mapping[str, float] | None = None,
    seeds: int = 5,
    noise: float = 0.08,
    epochs: int = 164,
    blocks: Sequence[str] = BLOCKS,
    finished: float = 1.0,
    failed: str = "",
    paper: bool = True,
    above: float = 0.1,
    where: Mapping[str, Sequence[str]] | None = None,
    plan: Plan | None = None,
) -> StoredStudy:
    """Write a study to `out`; the first share `finished` of its runs is done. The paper's figures
    are so much `above` the plain backbone, in the better direction. `where` is, by what is added to
    the names of rows, the blocks that get gates."""
    gains = dict(zip(GATES, GAINS, strict=True)) if gains is None else gains
    entries = _entries(name, data, gains, where or {"": blocks}, seeds)
    study = _study(name, entries, task, data, seeds, epochs, above if paper else None)
    done = round(finished * len(entries))
    plan = plan or Plan()
    for number, entry in enumerate(entries):
        if number < done:
            folder, when = out / entry.folder, _finished(plan, entry.seed)
            _write_run(folder, entry, task, gains, noise, epochs, blocks, where or {}, when)
        elif failed:
            write_failure(out, entry, failed)
            failed = ""
    directory = out / "studies" / name
    directory.mkdir(parents=True)
    _write_plans(directory, entries, plan, tuple(range(seeds)))
    study = replace(study, plans_end=read_plans(directory).end)
    write_study(directory, study)
    table = make_table(out, study, plan)
    write_table(directory, table)
    groups = {group.name: group.timed for group in table.groups if group.timed is not None}
    write_speed(directory, StudySpeed(groups=groups))
    return study


def prove(folder: Path) -> None:
    """Make the manifest of a run anew, after a file of it was written by hand."""
    write_manifest(folder, folder.name)


def write_failure(out: Path, entry: RunEntry, error: str) -> None:
    (out / entry.folder).mkdir(parents=True)
    content = json.dumps({"error": error, "when": 0.0, "details": ""})
    (out / entry.folder / "failure.json").write_text(content)


def _entries(
    name: str,
    data: Sequence[str],
    gains: Mapping[str, float],
    where: Mapping[str, Sequence[str]],
    seeds: int,
) -> list[RunEntry]:
    rows = [("plain", "none"), *((gate + place, gate) for place in where for gate in gains)]
    found = []
    for each in data:
        for row, gate in rows:
            for seed in range(seeds):
                cell = StudyCell(each, "resnet20", row, plain=gate == "none")
                key = f"{name} {each} {row} {seed}"
                run_id = hashlib.sha256(key.encode()).hexdigest()[:12]
                identity = {"settings": {"data": each, "row": row, "seed": seed}}
                found.append(RunEntry(run_id, run_id, seed, cell, gate, identity))
    # As plans are worked off: one seed of all rows, then the next.
    return sorted(found, key=lambda entry: entry.seed)


def _study(
    name: str,
    entries: Sequence[RunEntry],
    task: Simulated,
    data: Sequence[str],
    seeds: int,
    epochs: int,
    above: float | None,
) -> StoredStudy:
    definition: dict[str, Any] = {"name": name, "seeds": list(range(seeds))}
    if above is not None:
        figures = {
            f"{each} resnet20": {
                "plain": {
                    "mean": task.base[each] + task.sign * task.unit * above,
                    "std": 0.15 * task.unit,
                }
            }
            for each in data
        }
        definition["paper"] = {"source": "nowhere", "figures": {task.metrics[0].name: figures}}
    return StoredStudy(
        name=name,
        title="A simulated study: these numbers are made up",
        definition=definition,
        recipe="digits",
        deviations=(("epochs", 12, epochs), ("batch_size", 64, 256)),
        bibliography="@article{nobody,\n}",
        runs=tuple(entries),
        seeds=tuple(range(seeds)),
        has_plain=True,
        metrics=task.metrics,
        invocation=StudyInvocation(f"{name}.toml"),
    )


def _finished(plan: Plan, seed: int) -> float:
    """An hour after the first plan that has the seed."""
    number = next((n for n, seeds in enumerate(plan.seeds) if seed in seeds), len(plan.seeds))
    return 1.7e9 + 86_400 * number + 3600


def _write_plans(
    directory: Path, entries: Sequence[RunEntry], plan: Plan, seeds: tuple[int, ...]
) -> None:
    seen: tuple[str, ...] = ()
    for number, planned in enumerate((*plan.seeds, seeds)):
        own = tuple(entry for entry in entries if entry.seed in planned)
        # Without seeds that were added, the looks were planned.
        until = plan.sequential and not plan.seeds
        add_plan(directory, PlanRecord(1.7e9 + 86_400 * number, planned, own, seen, until))
        seen = tuple(entry.run_id for entry in own)


def _write_run(
    folder: Path,
    entry: RunEntry,
    task: Simulated,
    gains: Mapping[str, float],
    noise: float,
    epochs: int,
    blocks: Sequence[str],
    where: Mapping[str, Sequence[str]],
    finished: float,
) -> None:
    (folder / "measured").mkdir(parents=True)
    key = entry.cell.data.encode()
    own = np.random.default_rng([entry.seed, *key, *entry.cell.row.encode()])
    shared = np.random.default_rng([entry.seed, *key]).normal(0, 0.25)
    gated = not entry.cell.plain
    gain = gains.get(entry.attention, 0.0)
    moved = shared + (gain + own.normal(0, noise) if gated else 0.0)
    value = task.base[entry.cell.data] + task.sign * task.unit * moved
    curve = _curve(value, epochs, own, task)
    metric, *others = task.metrics
    last = {metric.name: curve[-1] / metric.scale, **{m.name: 0.5 for m in others}}
    best = int(np.argmax(np.array(curve) * task.sign))
    rank = 1 + list(gains).index(entry.attention) if gated else 0
    asr = entry.attention.startswith("asr")
    place = entry.cell.row.removeprefix(entry.attention)
    sites = where.get(place, blocks) if gated else []
    channels = 32
    gates = _gates(own, sites, channels, asr)
    result = RunResult(
        run_id=entry.run_id,
        label=str(entry),
        epochs=epochs,
        metrics=task.metrics,
        values=last,
        best_value=curve[best] / metric.scale,
        best_epoch=best + 1,
        train_loss=0.05,
        parameters=270_000 + 3_000 * rank,
        macs=41_000_000 + 300_000 * rank,
        train_images_per_second=900 - 20 * rank,
        data_share=0.05,
        seconds=320.0,
        sites=len(sites),
    )
    _write_history(folder, entry, curve, metric, gates, own, channels)
    note = ("The network has gates; convention 'state' counts states.",) if gated else ()
    measured: dict[str, dict[str, Any] | None] = {
        "stiffness": stiffness_content(own, blocks, sites, gain),
        "stripe": _stripe(gates, asr) if gated else None,
        "fold": _fold(sites, last) if asr else None,
    }
    for name, found in measured.items():
        notes = note if name == "stiffness" else ()
        content = Measured(measurement=name, found=found, notes=notes).model_dump_json()
        # Without the syncing of `write_measured`: 600 files.
        (folder / "measured" / f"{name}.json").write_text(content)
    environment = {
        "python": "3.11.9",
        "packages": {"torch": "2.8.0"},
        "processor": "a processor",
        "threads": 1,
        "accelerator": "a GPU",
        "commit": "a1b2c3d" + "0" * 33,
        "host": "secret-host",
        "command": ["attnlab"],
    }
    facts = {"name": entry.cell.data, "checksum": entry.cell.data.encode().hex().ljust(64, "0")}
    for file, content in (
        ("config.json", {"backbone": "resnet20", "task": {"name": "made up"}}),
        ("environment.json", {"starts": [environment]}),
        ("data.json", facts),
    ):
        (folder / file).write_text(json.dumps(content))
    (folder / "result.json").write_text(result.model_dump_json())
    made = write_manifest(folder, entry.run_id).model_copy(update={"finished": finished})
    (folder / "manifest.json").write_text(sealed(made.model_dump(mode="json")))


def _write_history(
    folder: Path,
    entry: RunEntry,
    curve: Sequence[float],
    metric: Metric,
    gates: Mapping[str, np.ndarray],
    own: np.random.Generator,
    channels: int,
) -> None:
    epochs = len(curve)
    history: list[dict[str, Any]] = [
        {
            "epoch": e,
            "lr": 0.1 * 0.1 ** (e > epochs // 2) * 0.1 ** (e > 3 * epochs // 4),
            "train": {},
            "test": {metric.name: v / metric.scale},
        }
        for e, v in enumerate(curve, 1)
    ]
    means = {name: values.mean(0) for name, values in gates.items()}
    for record in history if gates and entry.seed == 0 else ():
        settled = own.normal(0, 0.2 * 0.97 ** record["epoch"], channels)
        record["gates"] = {f"layer{n}": (v + settled).round(4).tolist() for n, v in means.items()}
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in history))


def stiffness_content(
    own: np.random.Generator, blocks: Sequence[str], sites: Sequence[str], gain: float
) -> dict[str, Any]:
    steps = []
    for place, block in enumerate(blocks):
        mean = 0.1 + (1.5 - gain) * 0.95**place + own.normal(0, 0.005)
        steps.append(
            StepResult(
                label=block,
                stage=int(block.partition(".")[0]),
                name=f"layer{block}",
                kind="sum",
                kept=not block.endswith(".0"),
                gated=block in sites,
                mean=mean,
                spread=0.1,
                minimum=mean - 0.3,
                quantile_05=mean - 0.2,
                median=mean,
                quantile_95=mean + 0.2,
                maximum=mean + 0.3,
                stiffest_share=0.75 if block == "1.1" else 0.25 if block == "2.1" else 0.0,
            )
        )
    degrees, surface = (0.0, 1.0, 2.0), ((1.0, 0.5, 0.0), (0.5, 0.2, 0.0), (0.0, 0.0, 0.0))
    found = StiffnessResult(
        network="ResNet",
        convention="state",
        plan=f"{len(steps)} steps",
        parameters=270_000,
        inputs=256,
        skipped=0,
        tns=2.3 - 1.1 * gain + own.normal(0, 0.01),
        tns_spread=0.2,
        stiffest_share_of_tns=0.3,
        stiffest=StiffestStep("1.1", "layer1.1", 0.75),
        nsi=tuple(steps),
        relative_degrees=degrees,
        absolute_degrees=degrees,
        surface=surface,
        proportion=surface,
        proportion_integral=0.7,
    )
    return json.loads(found.to_json())


def _stripe(gates: Mapping[str, np.ndarray], constant: bool) -> dict[str, Any]:
    sites = tuple(
        SiteStripe(
            label=label,
            name=f"layer{label}",
            kind="inserted",
            channels=values.shape[1],
            mean=float(values.mean()),
            smallest=float(values.min()),
            largest=float(values.max()),
            image_spread=float(values.std(0).mean()),
            channel_spread=float(values.mean(0).std()),
            constant=constant,
            channel_means=tuple(values.mean(0).tolist()),
            sampled_channels=tuple(range(values.shape[1])),
            sample=tuple(map(tuple, values.round(4).tolist())),
        )
        for label, values in gates.items()
    )
    found = StripeResult(network="ResNet", images=32, different_images=8, sites=sites)
    return json.loads(found.to_json())


def _curve(value: float, epochs: int, numbers: np.random.Generator, task: Simulated) -> list[float]:
    time = np.arange(1, epochs + 1) / epochs
    rise = -40 * np.exp(-6 * time) - 2 * (time < 0.5) - 0.5 * (time < 0.75)
    rise += numbers.normal(0, 1.2, epochs) * np.where(time < 0.5, 1, 0.08)
    curve = value + task.sign * task.unit * rise
    curve[-1] = value
    return [float(v) for v in curve]


def _gates(
    numbers: np.random.Generator, blocks: Sequence[str], channels: int, constant: bool
) -> dict[str, np.ndarray]:
    found = {}
    for place, block in enumerate(blocks):
        stripes = 0.5 + 0.2 * numbers.normal(size=channels)
        across = 0.0 if constant else 0.02 + 0.12 * place / len(blocks)
        found[block] = stripes[None, :] + across * numbers.normal(size=(32, channels))
    return found


def make_table(out: Path, study: StoredStudy, plan: Plan | None = None) -> StudyTable:
    """The table of what is finished."""
    plan = plan or Plan()
    runs = {
        (entry.cell, entry.seed): StoredRun(out / entry.folder)
        for entry in study.runs
        if StoredRun(out / entry.folder).is_trained
    }
    metrics = study.metrics
    names = dict.fromkeys(entry.cell.group for entry in study.runs)
    notes = []
    if len(runs) < len(study.runs):
        notes.append(f"{len(runs)} of {len(study.runs)} runs are finished")
    if len(study.seeds) == 1:
        notes.append("one seed: no interval, so nothing can be said to be better")
    return StudyTable(
        study=study.name,
        title=study.title,
        level=0.95,
        metrics=metrics,
        groups=tuple(_group(name, study, runs, metrics, plan) for name in names),
        paper_source=study.definition.get("paper", {}).get("source", ""),
        paper_note="",
        notes=tuple(notes),
        changes=plan.changes,
        sequential=plan.sequential,
        planned=len(study.runs),
        finished=tuple(run.directory.name for run in runs.values()),
    )


def _group(
    name: str,
    study: StoredStudy,
    runs: Mapping[tuple[StudyCell, int], StoredRun],
    metrics: Sequence[Metric],
    plan: Plan,
) -> Group:
    metric = metrics[0]
    cells = list(dict.fromkeys(e.cell for e in study.runs if e.cell.group == name))

    def values(cell: StudyCell, read: Callable[[RunResult], float]) -> dict[int, float]:
        return {
            seed: metric.scale * read(run.result) for (c, seed), run in runs.items() if c == cell
        }

    last = {cell.row: values(cell, lambda result: result.value) for cell in cells}
    best = {cell.row: values(cell, lambda result: result.best_value) for cell in cells}
    compared, by_best = _compare(last, metric, plan), _compare(best, metric, plan)
    figures = study.definition.get("paper", {}).get("figures", {})
    timed = _timed(cells, runs)
    rows = []
    for cell in cells:
        own = [run for (c, _), run in sorted(runs.items(), key=_seed) if c == cell]
        seeds = tuple(sorted(last[cell.row]))
        missing = tuple(seed for seed in study.seeds if seed not in seeds)
        paper = {
            m: PaperFigure(**groups[name][cell.row])
            for m, groups in figures.items()
            if cell.row in groups.get(name, {})
        }
        stale = (plan.stale or {}).get(cell.row, ())
        if not own:
            rows.append(StudyRow(cell.row, cell.plain, seeds, missing, stale, paper=paper))
            continue
        shown = {
            m.name: summary([m.scale * run.result.values[m.name] for run in own]) for m in metrics
        }
        tns = _found(own, "stiffness", "tns")
        folded = [each[metric.name] * metric.scale for each in _found(own, "fold", "values")]
        rows.append(
            StudyRow(
                label=cell.row,
                plain=cell.plain,
                seeds=seeds,
                missing=missing,
                stale=stale,
                values=shown,
                by_seed=last[cell.row],
                best=summary(list(best[cell.row].values())),
                best_by_seed=best[cell.row],
                best_verdict=by_best[cell.row].verdict if cell.row in by_best else None,
                comparison=compared.get(cell.row),
                parameters=own[0].result.parameters,
                macs=own[0].result.macs,
                train_speed=float(np.median([r.result.train_images_per_second for r in own])),
                inference_speed=1000 / timed.rows[cell.row].milliseconds,
                speed=timed.rows[cell.row],
                folded_speed=timed.folded.get(cell.row),
                tns=summary(tns) if tns else None,
                fold_error=max(_found(own, "fold", "float64_change"), default=None),
                folded_parameters=max(_found(own, "fold", "parameters_after"), default=None),
                folded=summary(folded) if folded else None,
                paper=paper,
            )
        )
    return Group(name, cells[0].data, cells[0].backbone, tuple(rows), timed)


def _timed(
    cells: Sequence[StudyCell], runs: Mapping[tuple[StudyCell, int], StoredRun]
) -> GroupSpeed:
    """Made up: each row takes 5 % longer than the one before; folded, it is as the plain."""
    first = {
        cell: min((seed, run.directory.name) for (c, seed), run in runs.items() if c == cell)[1]
        for cell in cells
        if any(c == cell for c, _ in runs)
    }

    def taken(folder: str, ratio: float) -> TimedNetwork:
        low, high = ratio - 0.02, ratio + 0.02
        return TimedNetwork(
            folder=folder, milliseconds=1.84 * ratio, ratio=ratio, low=low, high=high
        )

    return GroupSpeed(
        reference="plain",
        rows={c.row: taken(folder, 1 + 0.05 * n) for n, (c, folder) in enumerate(first.items())},
        folded={c.row: taken(folder, 1.0) for c, folder in first.items() if "asr" in c.row.lower()},
        rounds=30,
        batch=64,
        threads=1,
        processor="a processor",
    )


def _seed(item: tuple[tuple[StudyCell, int], StoredRun]) -> int:
    return item[0][1]


def _fold(sites: Sequence[str], values: dict[str, float]) -> dict[str, Any]:
    """The receipt of a fold, as a run stores it."""
    receipt = FoldReceipt(
        action=f"folded {len(sites)} gates of ResNet",
        sites=tuple(sites),
        parameters_before=273_000,
        parameters_after=270_000,
        macs_before=41_300_000,
        macs_after=41_000_000,
        max_change=1e-6,
        relative_change=1e-7,
        float64_change=2.4e-13,
        values=dict(values),
    )
    content: dict[str, Any] = json.loads(receipt.to_json())
    return content


def _found(runs: Sequence[StoredRun], measurement: str, key: str) -> list[Any]:
    every = [run.measured(measurement) for run in runs]
    return [each.found[key] for each in every if each is not None and each.found is not None]


def summary(values: Sequence[float]) -> Summary:
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Summary(float(np.mean(values)), std, len(values))


def _compare(
    values: Mapping[str, Mapping[int, float]], metric: Metric, plan: Plan
) -> dict[str, Comparison]:
    plain = values.get("plain", {})
    pairs = {
        row: {seed: own[seed] - plain[seed] for seed in own if seed in plain}
        for row, own in values.items()
        if row != "plain"
    }
    differences = {row: _difference(own, plan) for row, own in pairs.items() if own}
    p_values = {
        row: 1.0 if p is None else p
        for row, each in differences.items()
        for p in [each.figures(plan.sequential)[2]]
    }
    holm: dict[str, float] = {}
    largest = 0.0
    for rank, row in enumerate(sorted(p_values, key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[row]))
        holm[row] = largest
    found = {}
    for row, each in differences.items():
        low, high, p = each.figures(plan.sequential)
        verdict: Verdict = "no difference shown"
        if p is None or low is None or high is None or plan.cannot_tell:
            verdict = "cannot tell"
        elif holm[row] < 0.05 and not low <= 0 <= high:
            up = each.mean > 0
            verdict = "better" if up == (metric.better == "higher") else "worse"
        adjusted = None if p is None or plan.cannot_tell else holm[row]
        found[row] = Comparison(each, adjusted, verdict, plan.sequential)
    return found


def _difference(by_seed: Mapping[int, float], plan: Plan) -> PairedDifference:
    """The anytime figures are made up: three times as wide, twenty times as likely."""
    seeds, values = tuple(sorted(by_seed)), np.array([by_seed[s] for s in sorted(by_seed)])
    mean = float(values.mean())
    if len(values) == 1:
        note = "one seed: no interval"
        return PairedDifference(
            mean, None, None, None, seeds, note, anytime_note=note, cannot_tell=plan.cannot_tell
        )
    test = stats.ttest_1samp(values, 0.0)
    low, high = test.confidence_interval(0.95)
    p = float(test.pvalue)
    return PairedDifference(
        mean,
        float(low),
        float(high),
        p,
        seeds,
        std=float(values.std(ddof=1)),
        anytime_low=mean - 3 * (mean - float(low)),
        anytime_high=mean + 3 * (float(high) - mean),
        anytime_p=min(1.0, 20 * p),
        cannot_tell=plan.cannot_tell,
    )
