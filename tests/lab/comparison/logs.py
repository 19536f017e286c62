"""Logs as other programs write them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

ULTRALYTICS = "metrics/mAP50-95(B)"

PLAIN = [0.512, 0.507, 0.519, 0.515, 0.509, 0.514]
CBAM = [0.514, 0.510, 0.520, 0.519, 0.511, 0.515]
"""Of six seeds; every difference is positive."""


def ultralytics(folder: Path, model: str, seed: int, values: Sequence[float]) -> Path:
    """`results.csv` with padded headings, as of 8.0, and `args.yaml`."""
    run = folder / f"train{model}{seed}"
    run.mkdir(parents=True)
    (run / "args.yaml").write_text(
        f"task: detect\nmode: train\nmodel: {model}.yaml\nseed: {seed}\nname: train\nfreeze: null\n"
    )
    lines = [f"                  epoch,         train/box_loss,    {ULTRALYTICS}"]
    lines += [f"  {epoch},  {1 / (epoch + 1):.5f},   {v}" for epoch, v in enumerate(values)]
    (run / "results.csv").write_text("\n".join(lines) + "\n")
    return run / "results.csv"


def lightning(folder: Path, name: str, values: Sequence[float], seed: int | None = None) -> Path:
    """`metrics.csv` of CSVLogger: a row per log call, blanks elsewhere."""
    run = folder / name / "version_0"
    run.mkdir(parents=True)
    (run / "hparams.yaml").write_text("{}\n" if seed is None else f"seed: {seed}\nlr: 0.1\n")
    lines = ["epoch,step,train_loss,val_acc"]
    for epoch, value in enumerate(values):
        lines += [f"{epoch},{epoch * 10 + 5},0.5,", f"{epoch},{epoch * 10 + 9},,{value}"]
    (run / "metrics.csv").write_text("\n".join(lines) + "\n")
    return run / "metrics.csv"


def huggingface(folder: Path, name: str, values: Sequence[float]) -> Path:
    run = folder / name / "checkpoint-30"
    run.mkdir(parents=True)
    history = []
    for epoch, value in enumerate(values, 1):
        history.append({"epoch": epoch, "loss": 0.4, "step": 10 * epoch})
        history.append({"epoch": epoch, "eval_accuracy": value, "step": 10 * epoch})
    file = run / "trainer_state.json"
    file.write_text(json.dumps({"best_metric": None, "log_history": history}))
    return file


def study(folder: Path) -> list[Path]:
    return [
        ultralytics(folder, model, seed, [0.1, value])
        for model, values in (("plain", PLAIN), ("cbam", CBAM))
        for seed, value in enumerate(values)
    ]
