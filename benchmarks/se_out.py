"""Squeeze-and-excitation taken out of trained networks: what it costs, predicted and measured.

    attnlab study run se-out-resnet
    attnlab study run se-out-mobilenet
    python benchmarks/se_out.py runs/*/ --json se_out.json     # a second run continues it
    python benchmarks/se_out.py --json se_out.json             # only the tables

Per run: gates go one after the other (`attnlab.fold`, budget "all"), chosen on training images
without their labels; everything is measured on the test images. The loader alternates the two, so
that the half which fold holds out is the test set. Then the original teaches the folded network on
the same training images. Ablations are those of `se_out_variants.py`; int8 is `se_out_int8.py`, and
by torch's own way `se_out_torchao.py`; `se_out_times.py` measures times. All tables of
docs/se-out.md are printed.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from se_out_figure import write_figure
from se_out_int8 import int8
from se_out_tables import TITLES, by_network, tables
from se_out_variants import VARIANTS, answers, made_constant
from torch import Tensor

import attnlab
from attnlab._files import write_whole
from attnlab.data import load_data
from attnlab.data.batches import Chunk
from attnlab.lab.training.directory import read_config
from attnlab.surgery.repair import Distil, Lesson, distil

IMAGES = 1000
"""Training images without labels that choose, make constants and repair."""
ABLATION_IMAGES = 256
CALIBRATION_IMAGES = 256
REPAIR = Distil(epochs=10)


def main(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional] = (),
    json_file: Annotated[Path, tyro.conf.arg(name="json")] = Path("se_out.json"),
    figure: Path | None = None,
    keep: Path | None = None,
    ablation: bool = True,
    threads: int = 1,
) -> None:
    """Measure the runs that the file does not have yet; print the tables, draw the figure. `keep`
    is a folder for the networks without SE."""
    torch.set_num_threads(threads)
    found = json.loads(json_file.read_text()) if json_file.is_file() else {}
    for run in runs:
        if (run / "model.safetensors").is_file() and run.name not in found:
            print(f"measuring {run}", flush=True)
            found[run.name] = measure(run, keep)
        if run.name in found and ablation:
            found[run.name]["ablation"] = ablations(run, found[run.name]["ablation"])
        write_whole(json_file, json.dumps(found, indent=1) + "\n")
    networks = by_network(found)
    print(tables(networks))
    if figure is not None:
        titled = {TITLES.get(name, name): each for name, each in networks.items()}
        print(f"wrote {write_figure(titled, figure)}")


def measure(run: Path, keep: Path | None) -> dict[str, Any]:
    """Everything about one trained network."""
    config = read_config(run)
    train, test, classes = images_of(run)
    network = attnlab.load(run).eval()
    plain, receipt = attnlab.fold_budget(
        network, alternating(train, test[:IMAGES], classes[:IMAGES]), "all", example=test[:1]
    )
    assert receipt.curve is not None
    repaired = copy.deepcopy(plain)
    with torch.no_grad():
        lessons = [Lesson(part, (network(part),)) for part in train.split(64)]
    taken = {name for row in receipt.rows for name in row.into}
    repair = distil(repaired, lessons, taken, REPAIR)  # what fold(repair=REPAIR) does
    networks = {"with SE": network, "SE out": plain, "SE out, repaired": repaired}
    if keep is not None:
        description = attnlab.networks.checkpoint.describe(run)
        assert description is not None
        description = description.after_fold(plain, receipt)
        attnlab.save(plain, keep / f"{run.name}-out.safetensors", description)
        attnlab.save(repaired, keep / f"{run.name}-repaired.safetensors", description)
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
        "ablation": {},
        "int8": {
            name: in_int8(each, train[:CALIBRATION_IMAGES], test, classes, said[name])
            for name, each in networks.items()
        },
    }


def ablations(run: Path, known: dict[str, Any]) -> dict[str, Any]:
    """Every variant, in their order; those that are known are not made again."""
    train, test, classes = images_of(run)
    network = attnlab.load(run).eval()
    before = answers(network, test)
    return {
        variant.label: known.get(variant.label)
        or compared(
            before,
            answers(made_constant(network, train[:ABLATION_IMAGES], variant), test),
            classes,
        )
        for variant in VARIANTS
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


if __name__ == "__main__":
    tyro.cli(main)
