"""Squeeze-and-excitation taken out of trained networks: what it costs, predicted and measured.

    attnlab study run se-out-resnet
    attnlab study run se-out-mobilenet
    python benchmarks/se_out.py runs/*/ --json se_out.json     # a second run continues it
    python benchmarks/se_out.py --json se_out.json             # only the tables

Per run: gates go one after the other (`attnlab.fold`, budget "all"), chosen on training images
without their labels; everything is measured on the test images. The loader alternates the two, so
that the half which fold holds out is the test set. Then the original teaches the folded network on
the same training images. Ablations are those of `se_out_variants.py`; int8 is `se_out_int8.py`.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import tyro
from scipy.stats import spearmanr
from se_out_figure import write_figure
from se_out_int8 import int8
from se_out_variants import VARIANTS, answers, made_constant
from torch import Tensor

import attnlab
from attnlab.data import load_data
from attnlab.data.batches import Chunk
from attnlab.repair import Distil, Lesson, distil
from attnlab.train.directory import read_config

IMAGES = 1000
"""Training images without labels that choose, make constants and repair."""
ABLATION_IMAGES = 256
CALIBRATION_IMAGES = 256
REPAIR = Distil(epochs=10)


def main(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional] = (),
    json_file: Annotated[Path, tyro.conf.arg(name="json")] = Path("se_out.json"),
    figure: Path | None = None,
    ablation: bool = True,
    threads: int = 1,
) -> None:
    """Measure the runs that the file does not have yet; print the tables, draw the figure."""
    torch.set_num_threads(threads)
    found = json.loads(json_file.read_text()) if json_file.is_file() else {}
    for run in runs:
        if (run / "model.safetensors").is_file() and run.name not in found:
            print(f"measuring {run}", flush=True)
            found[run.name] = measure(run, ablation=ablation)
            json_file.write_text(json.dumps(found, indent=1) + "\n")
    by_backbone: dict[str, list[dict[str, Any]]] = {}
    for each in sorted(found.values(), key=lambda each: (each["backbone"], each["seed"])):
        by_backbone.setdefault(each["backbone"], []).append(each)
    for backbone, of_backbone in by_backbone.items():
        print(tables(backbone, of_backbone))
    if figure is not None:
        print(f"wrote {write_figure(by_backbone, figure)}")


def measure(run: Path, *, ablation: bool) -> dict[str, Any]:
    """Everything about one trained network."""
    config = read_config(run)
    train, test, classes = images_of(run)
    network = attnlab.load(run).eval()
    plain, receipt = attnlab.fold(
        network,
        constants=alternating(train, test[:IMAGES], classes[:IMAGES]),
        budget="all",
        example=test[:1],
    )
    assert receipt.curve is not None
    repaired = copy.deepcopy(plain)
    with torch.no_grad():
        lessons = [Lesson(part, (network(part),)) for part in train.split(64)]
    taken = {name for row in receipt.rows for name in row.into}
    repair = distil(repaired, lessons, taken, REPAIR)  # what fold(repair=REPAIR) does
    networks = {"with SE": network, "SE out": plain, "SE out, repaired": repaired}
    said = {name: answers(each, test) for name, each in networks.items()}
    return {
        "backbone": f"{config.backbone} {config.attention}",
        "seed": config.seed,
        "images": len(train),
        "curve": asdict(receipt.curve),
        "float64_change": receipt.float64_change,
        "parameters": [receipt.parameters_before, receipt.parameters_after],
        "macs": [receipt.macs_before, receipt.macs_after],
        "repair": asdict(repair),
        "float": {name: compared(said["with SE"], each, classes) for name, each in said.items()},
        "ablation": {
            variant.label: compared(
                said["with SE"],
                answers(made_constant(network, train[:ABLATION_IMAGES], variant), test),
                classes,
            )
            for variant in (VARIANTS if ablation else ())
        },
        "int8": {
            name: in_int8(each, train[:CALIBRATION_IMAGES], test, classes, said[name])
            for name, each in networks.items()
        },
    }


def images_of(run: Path) -> tuple[Tensor, Tensor, Tensor]:
    """Training images, as many as there are test images and not augmented; test images and their
    classes."""
    config = read_config(run)
    as_they_are = config.data.augmentation.model_copy(update={"crop": "none", "flip": False})
    data = load_data(config.data.model_copy(update={"augmentation": as_they_are}))
    cpu, number = torch.device("cpu"), min(IMAGES, data.facts.test)
    mixed = torch.randperm(data.facts.train, generator=torch.Generator().manual_seed(0))
    chunk = Chunk(mixed[:number], number)
    (train,) = data.training([chunk], 0, 0, cpu)
    (test,) = data.testing([torch.arange(data.facts.test)], cpu)
    return train.inputs, test.inputs, test.targets


def alternating(train: Tensor, test: Tensor, classes: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Training and test images in turns; the class of a training image is never looked at, and is
    given as 0."""
    for some, others, known in zip(train.split(32), test.split(32), classes.split(32), strict=True):
        both = torch.stack((some, others), 1).flatten(0, 1)
        yield both, torch.stack((torch.zeros_like(known), known), 1).flatten()


def compared(before: Tensor, after: Tensor, classes: Tensor) -> dict[str, float]:
    """In percent: accuracy, its difference with the standard error image by image, and the share of
    other answers; and the relative change of the output."""
    first, second = (each.argmax(1) for each in (before, after))
    gained = (second == classes).double() - (first == classes).double()
    return {
        "accuracy": 100 * float((second == classes).double().mean()),
        "gained": 100 * float(gained.mean()),
        "error": 100 * float(gained.std(correction=0)) / len(gained) ** 0.5,
        "answers": 100 * float((first != second).double().mean()),
        "change": float((after - before).norm() / before.norm()),
    }


def in_int8(
    network: torch.nn.Module, calibration: Tensor, test: Tensor, classes: Tensor, said: Tensor
) -> dict[str, Any]:
    """The int8 network against the same one in float."""
    found = int8(network, calibration, test)
    return {**compared(said, torch.from_numpy(found.pop("answers")), classes), **found}


def tables(backbone: str, runs: list[dict[str, Any]]) -> str:
    """What docs/se-out.md shows."""
    return "\n\n".join(
        (
            f"## {backbone}, {len(runs)} runs",
            _curve(runs),
            _final(runs),
            _prediction(runs),
            _ablation(runs),
            _int8(runs),
        )
    )


def _difference(gained: list[float], errors: list[float]) -> str:
    """The mean over runs with its interval over images, and every run's."""
    half = 1.96 * float(np.sqrt(np.square(errors).sum())) / len(errors)
    mean = float(np.mean(gained))
    each = ", ".join(f"{value:+.2f}" for value in gained)
    return f"{mean:+.2f} [{mean - half:+.2f}, {mean + half:+.2f}] | {each}"


def _curve(runs: list[dict[str, Any]]) -> str:
    lines = [
        "| gates constant | predicted | measured | accuracy | Δ to SE [95 %] | by run |",
        "|---|---|---|---|---|---|",
    ]
    before = [run["curve"]["accuracy"] for run in runs]
    lines.append(f"| 0 | | | {100 * np.mean(before):.2f} | | |")
    for number in range(len(runs[0]["curve"]["points"])):
        points = [run["curve"]["points"][number] for run in runs]
        mean = {k: np.mean([p[k] for p in points]) for k in ("predicted", "measured", "accuracy")}
        gained = [100 * (p["accuracy"] - old) for p, old in zip(points, before, strict=True)]
        delta = _difference(gained, [100 * p["accuracy_error"] for p in points])
        lines.append(
            f"| {number + 1} | {mean['predicted']:.3f} | {mean['measured']:.3f} | "
            f"{100 * mean['accuracy']:.2f} | {delta} |"
        )
    return "\n".join(lines)


def _final(runs: list[dict[str, Any]]) -> str:
    lines = [
        "| network | parameters | MACs | accuracy | Δ to SE [95 %] | by run | other answers, % |",
        "|---|---|---|---|---|---|---|",
    ]
    for number, name in enumerate(runs[0]["float"]):
        rows = [run["float"][name] for run in runs]
        size, macs = (runs[0][key][min(number, 1)] for key in ("parameters", "macs"))
        delta = _difference([row["gained"] for row in rows], [row["error"] for row in rows])
        lines.append(
            f"| {name} | {size:,} | {macs:,} | {np.mean([row['accuracy'] for row in rows]):.2f} | "
            f"{delta} | {np.mean([row['answers'] for row in rows]):.2f} |"
        )
    return "\n".join(lines)


def _prediction(runs: list[dict[str, Any]]) -> str:
    points = [point for run in runs for point in run["curve"]["points"]]
    predicted, bound, measured = (
        np.array([point[name] for point in points]) for name in ("predicted", "bound", "measured")
    )
    within = float((measured <= bound).mean())
    ratio = np.exp(np.mean(np.log(measured / predicted)))
    largest = float((measured / predicted).max())
    rank = float(spearmanr(predicted, measured).statistic)
    return (
        f"Prediction, over {len(points)} budgets of {len(runs)} runs: Spearman {rank:.3f}; "
        f"measured within the bound {within:.0%}; measured over predicted {ratio:.2f} (geometric "
        f"mean), {largest:.2f} at most."
    )


def _ablation(runs: list[dict[str, Any]]) -> str:
    runs = [run for run in runs if run["ablation"]]
    if not runs:
        return "No ablation."
    lines = ["| constants | change | other answers, % | Δ accuracy |", "|---|---|---|---|"]
    for label in runs[0]["ablation"]:
        rows = [run["ablation"][label] for run in runs]
        change, others, gained = (
            np.mean([row[name] for row in rows]) for name in ("change", "answers", "gained")
        )
        lines.append(f"| {label} | {change:.4f} | {others:.2f} | {gained:+.2f} |")
    return "\n".join(lines)


def _int8(runs: list[dict[str, Any]]) -> str:
    lines = [
        "| network | float | int8 | int8 − float [95 %] | by run | other answers, % | "
        "operators in int8 | in float |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in runs[0]["int8"]:
        rows = [run["int8"][name] for run in runs]
        floats = np.mean([run["float"][name]["accuracy"] for run in runs])
        delta = _difference([row["gained"] for row in rows], [row["error"] for row in rows])
        lines.append(
            f"| {name} | {floats:.2f} | {np.mean([row['accuracy'] for row in rows]):.2f} | {delta} "
            f"| {np.mean([row['answers'] for row in rows]):.2f} | {rows[0]['in_int8']} | "
            f"{rows[0]['in_float']} |"
        )
    kinds = {name: runs[0]["int8"][name]["float_operators"] for name in runs[0]["int8"]}
    lines += ["", f"Operators in float: {kinds}"]
    return "\n".join(lines)


if __name__ == "__main__":
    tyro.cli(main)
