"""What a run measures beside its accuracy: stiffness, gates, speed, folding."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from attnlab._errors import FoldError, StepsNotFoundError
from attnlab._files import write_whole
from attnlab.fold import fold
from attnlab.insert import attachments
from attnlab.insert.receipt import count_parameters
from attnlab.record.example import evaluating, measure
from attnlab.stripe import gate_statistics, gate_values
from attnlab.train.config import RunConfig
from attnlab.train.data import Data
from attnlab.train.evaluate import evaluate
from attnlab.train.result import GateStatistics, RunResult, StepStiffness
from attnlab.trajectory import StiffnessResult, StiffnessWarning, stiffness

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_REPEATS = 5
_SAMPLE = 48
"""Images whose gates are kept for pictures."""
_CHANNELS = 64
"""Channels of a gate whose means are kept epoch by epoch."""


def measurements(
    fabric: Fabric,
    config: RunConfig,
    network: nn.Module,
    data: Data,
    history: list[dict[str, Any]],
    folder: Path,
) -> RunResult:
    """The result of a run whose epochs are all done."""
    example = next(_test_images(data, fabric.device, 1, 1))
    notes: list[str] = []
    writing = folder if fabric.is_global_zero else None
    stiff = _stiffness(config, network, data, fabric.device, notes, writing)
    gates = _gates(config, network, data, fabric.device, writing)
    folded = _folded(fabric, config, network, data, example, notes)
    last, best = history[-1], max(history, key=lambda record: record["top1"])
    return RunResult(
        run_id=config.run_id,
        label=config.label,
        epochs=len(history),
        top1=last["top1"],
        top5=last["top5"],
        test_loss=last["test_loss"],
        train_loss=last["train_loss"],
        best_top1=best["top1"],
        best_epoch=best["epoch"],
        parameters=count_parameters(network),
        macs=measure(network, example)[1],
        train_images_per_second=median(record["images_per_second"] for record in history),
        inference_images_per_second=_inference_speed(config, network, data, fabric),
        data_share=sum(r["data_seconds"] for r in history)
        / sum(r["train_seconds"] for r in history),
        seconds=sum(record["seconds"] for record in history),
        **stiff,
        gates=gates,
        **folded,
        notes=tuple(notes),
    )


def epoch_stiffness(
    fabric: Fabric, config: RunConfig, network: nn.Module, data: Data
) -> dict[str, Any]:
    """TNS and the mean gates after an epoch, where they were asked for."""
    if not config.measure.every_epoch:
        return {}
    found = _stiffness(config, network, data, fabric.device, [])
    values = _gate_values(config, network, data, fabric.device)
    gates = {name: _rounded_means(value) for name, value in values.items()}
    return {"tns": found.get("tns"), **({"gates": gates} if gates else {})}


def _rounded_means(values: Tensor) -> list[float]:
    """Of some channels, with four digits: the metrics of a long run must stay readable."""
    channels = torch.linspace(0, values.shape[1] - 1, min(values.shape[1], _CHANNELS)).round()
    return [float(f"{mean:.4g}") for mean in values.mean(0)[channels.long()].tolist()]


def _test_images(
    data: Data, device: torch.device, number: int, batch_size: int
) -> Iterator[Tensor]:
    """Test images, evenly spread, because many sets are sorted by class."""
    number = min(number, data.facts.test)
    chosen = torch.linspace(0, data.facts.test - 1, number).round().long()
    for images, _ in data.testing(list(chosen.split(batch_size)), device):
        yield images


def _stiffness(
    config: RunConfig,
    network: nn.Module,
    data: Data,
    device: torch.device,
    notes: list[str],
    folder: Path | None = None,
) -> dict[str, Any]:
    """NSI and TNS; with the surfaces in stiffness.json."""
    if not config.measure.images:
        return {}
    images = _test_images(data, device, config.measure.images, config.recipe.test_batch_size)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StiffnessWarning)  # its text is among the notes
            found = stiffness(network, images, progress=False)
    except StepsNotFoundError:
        notes.append("The network has no residual step, so no TNS.")
        return {}
    notes += found.notes
    if folder is not None:
        found.save(folder / "stiffness.json")
    return {"tns": _finite(found.tns), "tns_spread": _finite(found.tns_spread), "nsi": _nsi(found)}


def _nsi(found: StiffnessResult) -> tuple[StepStiffness, ...]:
    return tuple(
        StepStiffness(label=step.label, mean=step.mean, spread=step.spread, gated=step.gated)
        for step in found.nsi
        if math.isfinite(step.mean) and math.isfinite(step.spread)
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _gates(
    config: RunConfig, network: nn.Module, data: Data, device: torch.device, folder: Path | None
) -> tuple[GateStatistics, ...]:
    """Each gate over images; per channel, and of some images, in gates.safetensors."""
    values = _gate_values(config, network, data, device)
    if values and folder is not None:
        tensors = {f"{name}.mean": v.mean(0) for name, v in values.items()}
        tensors |= {f"{name}.spread": v.std(0, correction=0) for name, v in values.items()}
        tensors |= {f"{name}.sample": v[:_SAMPLE].clone() for name, v in values.items()}
        write_whole(folder / "gates.safetensors", save({k: v.cpu() for k, v in tensors.items()}))
    return tuple(GateStatistics(**gate._asdict()) for gate in gate_statistics(network, values))


def _gate_values(
    config: RunConfig, network: nn.Module, data: Data, device: torch.device
) -> dict[str, Tensor]:
    if not config.measure.images or not any(True for _ in attachments(network)):
        return {}
    sizes = config.measure.images, config.recipe.test_batch_size
    return gate_values(network, _test_images(data, device, *sizes))


def _inference_speed(
    config: RunConfig, network: nn.Module, data: Data, fabric: Fabric
) -> float | None:
    """Images per second of the network alone, median of some passes after a first one."""
    if not config.measure.inference_images:
        return None
    sizes = config.measure.inference_images, config.recipe.test_batch_size
    batches = list(_test_images(data, fabric.device, *sizes))
    number = sum(len(images) for images in batches)
    times = []
    with evaluating(network), fabric.autocast():
        for _ in range(_REPEATS + 1):
            began = perf_counter()
            for images in batches:
                network(images)
            if fabric.device.type == "cuda":
                torch.cuda.synchronize()
            times.append(perf_counter() - began)
    return number / median(times[1:])


def _folded(
    fabric: Fabric,
    config: RunConfig,
    network: nn.Module,
    data: Data,
    example: Tensor,
    notes: list[str],
) -> dict[str, Any]:
    """Accuracy and error of the folded network, where the gates are constant."""
    if "asr" not in config.attention:
        return {}
    try:
        plain, receipt = fold(network, example=example)
    except FoldError as error:
        notes.append(f"Not folded: {str(error).splitlines()[0]}")
        return {}
    accuracy = evaluate(fabric, plain, data, config.recipe.test_batch_size)
    return {
        "folded_top1": accuracy.top1,
        "fold_error": receipt.float64_change,
        "folded_parameters": receipt.parameters_after,
    }
