"""A study on disk that nobody ran: what `attnlab study run` would write, with known numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from attnlab.study.definition import Study
from attnlab.study.grid import PlannedRun, planned_runs
from attnlab.study.store import Store, write_failure
from attnlab.train.result import GateStatistics, RunResult, StepStiffness

BASE = {"cifar10": 92.0, "cifar100": 68.0, "stl10": 84.0}
GATES = ("se", "step", "asr:se", "eca", "cbam", "srm", "fca", "sge", "ie")
GAINS = (0.45, 0.5, 0.42, 0.25, 0.24, 0.2, 0.04, 0.05, -0.05)
BLOCKS = [f"{stage}.{block}" for stage in (1, 2, 3) for block in range(3)]


def simulate(
    out: Path,
    *,
    name: str = "cifar-attention-v1",
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
) -> list[PlannedRun]:
    """Write a study to `out`; the first share `finished` of its runs is done. The paper's figures
    lie so many points `above` the plain backbone."""
    gains = dict(zip(GATES, GAINS, strict=True)) if gains is None else gains
    reference = {f"{d} resnet20": {"plain": f"{BASE[d] + above} ± 0.15"} for d in data}
    study = Study(
        name=name,
        title="A simulated study: these numbers are made up",
        data=list(data),
        backbone="resnet20",
        attention=["none", *gains],
        seeds=seeds,
        recipe={"name": "digits", "epochs": epochs, "batch_size": 256},
        paper={"source": "nowhere", "top1": reference} if paper else None,
    )
    runs = planned_runs(study)
    store = Store(out)
    store.write_study(study, runs)
    done = round(finished * len(runs))
    for number, run in enumerate(runs):
        if number < done:
            _write(store.directory(run.run_id), run, gains, noise, blocks)
        elif failed:
            store.directory(run.run_id).mkdir(parents=True)
            write_failure(store.directory(run.run_id), failed)
            failed = ""
    return runs


def _write(
    folder: Path, run: PlannedRun, gains: Mapping[str, float], noise: float, blocks: Sequence[str]
) -> None:
    folder.mkdir(parents=True)
    config = run.config
    seed_numbers = np.random.default_rng([run.seed, *config.data.name.encode()])
    own = np.random.default_rng([run.seed, *config.data.name.encode(), *config.attention.encode()])
    shared = seed_numbers.normal(0, 0.25)
    gain = gains.get(config.attention, 0.0)
    top1 = BASE[config.data.name] + shared
    if config.attention != "none":
        top1 += gain + own.normal(0, noise)
    epochs = config.recipe.epochs
    curve = _curve(top1, epochs, own)
    rank = 0 if config.attention == "none" else 1 + list(gains).index(config.attention)
    gated = config.attention != "none"
    asr = config.attention.startswith("asr")
    channels = 32
    gates = _gates(own, blocks, channels, asr) if gated else {}
    result = RunResult(
        run_id=run.run_id,
        label=config.label,
        epochs=epochs,
        top1=curve[-1] / 100,
        top5=0.99,
        test_loss=0.3,
        train_loss=0.05,
        best_top1=max(curve) / 100,
        best_epoch=int(np.argmax(curve)) + 1,
        parameters=270_000 + 3_000 * rank,
        macs=41_000_000 + 300_000 * rank,
        train_images_per_second=900 - 20 * rank,
        inference_images_per_second=1000 / (1.84 + 0.09 * rank),
        data_share=0.05,
        seconds=320.0,
        tns=2.3 - 1.1 * gain + own.normal(0, 0.01),
        tns_spread=0.2,
        nsi=tuple(
            StepStiffness(
                label=b, mean=_nsi(i, gain) + own.normal(0, 0.005), spread=0.3, gated=gated
            )
            for i, b in enumerate(blocks)
        ),
        gates=tuple(
            GateStatistics(
                label=label,
                mean=float(v.mean()),
                image_spread=float(v.std(0).mean()),
                channel_spread=float(v.mean(0).std()),
            )
            for label, v in gates.items()
        ),
        folded_top1=curve[-1] / 100 if asr else None,
        fold_error=2.4e-13 if asr else None,
        folded_parameters=270_000 if asr else None,
        notes=("The network has gates; convention 'state' counts states.",) if gated else (),
    )
    history = [
        {
            "epoch": e,
            "lr": 0.1 * 0.1 ** (e > epochs // 2) * 0.1 ** (e > 3 * epochs // 4),
            "top1": v / 100,
        }
        for e, v in enumerate(curve, 1)
    ]
    for record in history if gates and run.seed == 0 else ():
        settled = own.normal(0, 0.2 * 0.97 ** record["epoch"], channels)
        record["gates"] = {f"layer{n}": (v.mean(0) + settled).tolist() for n, v in gates.items()}
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
    facts = {"name": config.data.name, "checksum": config.data.name.encode().hex().ljust(64, "0")}
    (folder / "config.json").write_text(config.to_json())
    (folder / "environment.json").write_text(json.dumps(environment))
    (folder / "data.json").write_text(json.dumps(facts))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in history))
    (folder / "result.json").write_text(result.model_dump_json())
    if gates:
        tensors = {f"layer{label}.mean": v.mean(0) for label, v in gates.items()}
        tensors |= {f"layer{label}.sample": v for label, v in gates.items()}
        save_file(
            {k: v.astype(np.float32) for k, v in tensors.items()}, folder / "gates.safetensors"
        )


def _nsi(place: int, gain: float) -> float:
    return float(0.1 + (1.5 - gain) * 0.95**place)


def _curve(top1: float, epochs: int, numbers: np.random.Generator) -> list[float]:
    time = np.arange(1, epochs + 1) / epochs
    rise = top1 - 40 * np.exp(-6 * time) - 2 * (time < 0.5) - 0.5 * (time < 0.75)
    curve = rise + numbers.normal(0, 1.2, epochs) * np.where(time < 0.5, 1, 0.08)
    curve[-1] = top1
    return [float(v) for v in curve]


def _gates(
    numbers: np.random.Generator, blocks: Sequence[str], channels: int, constant: bool
) -> dict[str, np.ndarray]:
    found = {}
    for place, block in enumerate(blocks):
        stripes = 0.5 + 0.2 * numbers.normal(size=channels)
        across = 0.0 if constant else 0.02 + 0.12 * place / len(blocks)
        images = 1 if constant else 32
        found[block] = stripes[None, :] + across * numbers.normal(size=(images, channels))
    return found
