"""What it costs to take squeeze-and-excitation out of trained networks, predicted and measured."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import tyro
from torch import Tensor, nn

import attnlab
from attnlab.data import load_data
from attnlab.data.batches import Chunk
from attnlab.lab.training.surroundings import read_config
from attnlab.surgery.repair import Distil, Lesson, distil
from attnlab.timing import latency
from benchmarks._common import machine, read_json, settings, write_json
from benchmarks.se_out.figure import write_figure
from benchmarks.se_out.int8 import (
    onnx_int8,
    session,
    torchao_int8,
    torchao_operators,
    write_int8,
)
from benchmarks.se_out.tables import by_network, show
from benchmarks.se_out.variants import VARIANTS, answers, made_constant

SETTINGS = settings("se_out")
FILE = Path("out/se-out.json")
Runs = tyro.conf.Positional[tuple[Path, ...]]
Found = dict[str, Any]
Call = Callable[[Tensor], object]


def _known(json: Path, runs: tuple[Path, ...] = ()) -> Found:
    """Read what is measured already; all of `runs` must be."""
    found: Found = read_json(json)["runs"] if json.is_file() else {}
    unknown = [run.name for run in runs if run.name not in found]
    if unknown:
        raise SystemExit(
            f"Expected runs that {json} has, but not {', '.join(unknown)}. Measure them first: "
            "python -m benchmarks.se_out run RUN..."
        )
    return found


def run(
    runs: Runs = (),
    json: Path = FILE,
    figure: Path | None = None,
    keep: Path | None = None,
    ablation: bool = True,
    threads: int = 1,
) -> None:
    """Measure the runs that the file does not have yet, and print all tables of docs/se-out.md.

    Per run: gates go one after the other (`attnlab.fold`, budget "all"), chosen on training images
    without their labels; everything is measured on the test images. The loader alternates the two,
    so that the half which fold holds out is the test set. Then the original teaches the folded
    network on the same training images. Make runs with `attnlab study run se-out-resnet` and
    `attnlab study run se-out-mobilenet`; without runs, only tables are printed.

    Args:
        runs: folders of trained networks with SE.
        json: where the numbers are; a second run continues it.
        figure: draw the picture here.
        keep: a folder for the networks without SE.
        ablation: whether other constants are tried.
        threads: of torch.
    """
    torch.set_num_threads(threads)
    found = _known(json)
    for folder in runs:
        if (folder / "model.safetensors").is_file() and folder.name not in found:
            print(f"measuring {folder}", flush=True)
            found[folder.name] = _measured(folder, keep)
        if folder.name in found and ablation:
            known = found[folder.name]["ablation"]
            found[folder.name]["ablation"] = _ablations(folder, known)
        write_json(json, {"runs": found})
    show(found)
    if figure is not None:
        networks = by_network(found)
        titled = {SETTINGS["titles"].get(name, name): each for name, each in networks.items()}
        print(f"wrote {write_figure(titled, figure)}")


def _measured(folder: Path, keep: Path | None) -> Found:
    """Measure everything about one trained network."""
    config, number = read_config(folder), SETTINGS["images"]
    train, test, classes = _images(folder)
    network = attnlab.load(folder).eval()
    given = _alternating(train, test[:number], classes[:number])
    plain, receipt = attnlab.fold_budget(network, given, "all", example=test[:1])
    assert receipt.curve is not None
    repaired = copy.deepcopy(plain)
    with torch.no_grad():
        lessons = [Lesson(part, (network(part),)) for part in train.split(64)]
    taken = {name for row in receipt.rows for name in row.into}
    # What fold(repair=…) does.
    repair = distil(repaired, lessons, taken, Distil(epochs=SETTINGS["repair_epochs"]))
    networks = {"with SE": network, "SE out": plain, "SE out, repaired": repaired}
    if keep is not None:
        _keep(folder, networks, receipt, keep)
    said = {name: answers(each, test) for name, each in networks.items()}
    few = train[: SETTINGS["calibration_images"]]
    return {
        "backbone": f"{config.backbone} {config.attention}",
        "seed": config.seed,
        "images": len(train),
        "curve": asdict(receipt.curve),
        "float64_change": receipt.float64_change,
        "parameters": [receipt.parameters_before, receipt.parameters_after],
        "macs": [receipt.macs_before, receipt.macs_after],
        "repair": asdict(repair),
        "float": {name: _compared(said["with SE"], each, classes) for name, each in said.items()},
        "ablation": {},
        "int8": {n: _in_int8(each, few, test, classes, said[n]) for n, each in networks.items()},
    }


def _kept(folder: Path, keep: Path) -> dict[str, Path]:
    """Return the files of the networks without SE."""
    return {
        "SE out": keep / f"{folder.name}-out.safetensors",
        "SE out, repaired": keep / f"{folder.name}-repaired.safetensors",
    }


def _keep(folder: Path, networks: dict[str, nn.Module], receipt: Any, keep: Path) -> None:
    description = attnlab.networks.checkpoint.describe(folder)
    assert description is not None
    for name, file in _kept(folder, keep).items():
        attnlab.save(networks[name], file, description.after_fold(networks["SE out"], receipt))


def _ablations(folder: Path, known: Found) -> Found:
    """Measure every variant, in their order; those that are known are not made again."""
    train, test, classes = _images(folder)
    network = attnlab.load(folder).eval()
    before, few = answers(network, test), train[: SETTINGS["ablation_images"]]
    return {
        variant.label: known.get(variant.label)
        or _compared(before, answers(made_constant(network, few, variant), test), classes)
        for variant in VARIANTS
    }


def _images(folder: Path) -> tuple[Tensor, Tensor, Tensor]:
    """Return training images, as many as there are test images and not augmented; test images and
    their classes."""
    config = read_config(folder)
    as_they_are = config.data.augmentation.model_copy(update={"crop": "none", "flip": False})
    data = load_data(config.data.model_copy(update={"augmentation": as_they_are}))
    cpu, number = torch.device("cpu"), min(SETTINGS["images"], data.facts.test)
    mixed = torch.randperm(data.facts.train, generator=torch.Generator().manual_seed(0))
    (train,) = data.training([Chunk(mixed[:number], number)], 0, 0, cpu)
    (test,) = data.testing([torch.arange(data.facts.test)], cpu)
    return train.inputs, test.inputs, test.targets


def _alternating(train: Tensor, test: Tensor, classes: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield training and test images alternately; the class of a training image is never looked at,
    and is given as 0."""
    for some, others, known in zip(train.split(32), test.split(32), classes.split(32), strict=True):
        both = torch.stack((some, others), 1).flatten(0, 1)
        yield both, torch.stack((torch.zeros_like(known), known), 1).flatten()


def _compared(before: Tensor, after: Tensor, classes: Tensor) -> dict[str, float]:
    """Return in percent: accuracy, its difference with the standard error image by image, and the
    share of other answers; and the relative change of the output."""
    first, second = (each.argmax(1) for each in (before, after))
    gained = (second == classes).double() - (first == classes).double()
    return {
        "accuracy": 100 * float((second == classes).double().mean()),
        "gained": 100 * float(gained.mean()),
        "error": 100 * float(gained.std(correction=0)) / len(gained) ** 0.5,
        "answers": 100 * float((first != second).double().mean()),
        "change": float((after - before).norm() / before.norm()),
    }


def _in_int8(
    network: nn.Module, calibration: Tensor, test: Tensor, classes: Tensor, said: Tensor
) -> Found:
    """Compare the int8 network with the same one in float."""
    found = onnx_int8(network, calibration, test)
    return {**_compared(said, torch.from_numpy(found.pop("answers")), classes), **found}


def torchao(runs: Runs, kept: Path, json: Path = FILE) -> None:
    """Quantise by torch's own way, torchao's pt2e, the networks that `run --keep FOLDER` kept.

    Needs `pip install torchao`. The network is exported, `X86InductorQuantizer` says what becomes
    int8, one batch of training images calibrates, and the result is lowered to oneDNN's int8
    kernels, as the compiler does. Operators are those of that graph.

    Args:
        runs: folders of trained networks with SE.
        kept: the folder with the networks without SE.
        json: the file of `run`, to which the numbers are added.
    """
    torch.set_num_threads(1)
    found = _known(json, runs)
    for folder in runs:
        train, test, classes = _images(folder)
        measured = {}
        for name, file in {"with SE": folder, **_kept(folder, kept)}.items():
            network = attnlab.load(file).eval()
            lowered = torchao_int8(network, train[: SETTINGS["torchao_batch"]])
            compared = _compared(answers(network, test), answers(lowered, test), classes)
            measured[name] = {**compared, **torchao_operators(lowered)}
        found[folder.name]["torchao"] = measured
        write_json(json, {"runs": found})
    show(found, "int8 by torchao")


def times(
    runs: Runs, json: Path = FILE, batches: tuple[int, ...] = (1, 32), seconds: float = 20.0
) -> None:
    """Time networks with SE and without, interleaved: torch, onnxruntime in float and in int8.

    One run of each network is enough: the time depends neither on the weights nor on the constants,
    which are made from a few images. One thread.

    Args:
        runs: folders of trained networks with SE that `run` has measured.
        json: the file of `run`, in which the times are kept.
        batches: sizes of a batch.
        seconds: how long each pair is timed, at most.
    """
    torch.set_num_threads(1)
    found = _known(json, runs)
    for folder in runs:
        rows = list(_timed(folder, batches, seconds))
        found[folder.name]["times"] = {"machine": machine(), "rows": rows}
        write_json(json, {"runs": found})
    show(found, "Times")


def _timed(folder: Path, batches: tuple[int, ...], seconds: float) -> Iterator[Found]:
    """Time with SE against without, in every runtime and for every size of a batch."""
    images = _images(folder)[0]
    network = attnlab.load(folder).eval()
    few = images[: SETTINGS["time_images"]]
    plain, receipt = attnlab.fold_budget(network, [few], "all", example=few[:1])
    assert receipt.curve is not None
    assert len(receipt.sites) == len(receipt.curve.points)  # all went
    for runtime, before, after in _contestants(network, plain, few):
        for batch in batches:
            given = images[:batch].contiguous()
            said = latency(before, after, given, precision=0.01, seconds=seconds, threads=1)
            yield {"runtime": runtime, **asdict(said), "batch": batch, "said": str(said)}


def _contestants(
    network: nn.Module, plain: nn.Module, calibration: Tensor
) -> Iterator[tuple[str, nn.Module | Call, nn.Module | Call]]:
    """Yield the same two networks in every runtime."""
    yield "torch", network, plain
    with _in_onnx(network, calibration) as before, _in_onnx(plain, calibration) as after:
        for number, name in enumerate(("onnxruntime", "onnxruntime, int8")):
            yield name, before[number], after[number]


@contextmanager
def _in_onnx(network: nn.Module, calibration: Tensor) -> Iterator[list[Call]]:
    """Run a network by onnxruntime in float, and in int8."""
    with TemporaryDirectory() as folder:
        yield [_calling(path) for path in write_int8(network, calibration, Path(folder))]


def _calling(path: Path) -> Call:
    """Run a file on the memory of a tensor, without a copy."""
    running = session(path)
    name = running.get_inputs()[0].name
    return lambda images: running.run(None, {name: images.numpy()})
