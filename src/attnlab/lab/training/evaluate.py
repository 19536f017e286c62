"""Test a network: each process sees its part of the images."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from attnlab._errors import InputError
from attnlab.data import Batch, Data
from attnlab.data.batches import evaluation_chunks
from attnlab.lab.training.diagnose import NonFiniteLossError
from attnlab.tasks import Task

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def evaluate(
    network: nn.Module,
    task: Task,
    data: Data,
    batch_size: int,
    device: torch.device,
    *,
    rank: int = 0,
    processes: int = 1,
    channels_last: bool = False,
) -> dict[str, float | None]:
    """The task's metrics on the test images, by name."""
    chunks = evaluation_chunks(data.facts.test, batch_size, rank, processes)
    meters = task.meters(device)
    training = network.training
    network.eval()
    with torch.inference_mode():
        for batch in data.testing(chunks, device):
            laid_out = in_layout(batch, channels_last)
            meters.update(task.predict(network, laid_out), laid_out.targets)
    network.train(training)
    return _checked(meters.compute(), task, data)


def _checked(found: dict[str, float | None], task: Task, data: Data) -> dict[str, float | None]:
    about = f"on the {data.facts.test} test images of {data.facts.name!r}"
    for metric in task.metrics:
        value = found.get(metric.name)
        if value is not None and not math.isfinite(value):
            raise NonFiniteLossError(
                f"{metric.label} is {value} {about}: the network's outputs are not finite there, "
                f"though the training loss is. Lower lr, or add warmup_epochs or clip."
            )
    if found.get(task.metrics[0].name) is None:
        raise InputError(
            f"{task.metrics[0].label}, the result of task {type(task).__name__}, has no value "
            f"{about}."
        )
    return found


def in_layout(batch: Batch, channels_last: bool) -> Batch:
    """The batch with its images in channels-last memory, where that is asked for."""
    if not channels_last or not isinstance(batch.inputs, Tensor):
        return batch
    return batch._replace(inputs=batch.inputs.contiguous(memory_format=torch.channels_last))


def summed_over_processes(fabric: Fabric, sums: Tensor) -> list[float]:
    """The sums over all processes."""
    total = fabric.all_reduce(sums, reduce_op="sum")
    assert isinstance(total, Tensor)
    return total.tolist()
