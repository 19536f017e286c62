"""What is measured after every epoch, where that is asked for."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from attnlab._errors import StepsNotFoundError
from attnlab._spread import evenly_spread
from attnlab.data import Data
from attnlab.instruments.measurement import MeasureConfig
from attnlab.instruments.stiffness import StiffnessWarning
from attnlab.instruments.stiffness.measure import stiffness
from attnlab.instruments.stripe import gate_means, gate_values
from attnlab.residuals.gates import has_gates
from attnlab.subject import Subject
from attnlab.tasks import Task

_CHANNELS = 64
"""Channels of a gate whose means are kept epoch by epoch."""
_BATCH = 256


def epoch_record(
    config: MeasureConfig, network: nn.Module, task: Task, data: Data, device: torch.device
) -> dict[str, Any]:
    """TNS, the mean gates of a network that trains, and the gates of one image, the first."""
    subject = Subject("", network, data, task=task, batch_size=_BATCH, device=device)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StiffnessWarning)
            tns: float | None = stiffness(
                network, subject.inputs(config.images), progress=False
            ).tns
    except StepsNotFoundError:
        tns = None
    if not has_gates(network):
        return {"tns": tns}
    try:
        means = gate_means(network, subject.inputs(config.images))
        image = gate_values(network, subject.inputs(1))
    except StepsNotFoundError:
        return {"tns": tns}
    return {
        "tns": tns,
        "gates": {name: _rounded(mean) for name, mean in means.items()},
        "image_gates": {name: _rounded(values[0]) for name, values in image.items()},
    }


def _rounded(means: Tensor) -> list[float]:
    """Some channels, to what float32 holds: gates move by less than 1e-4 in late epochs."""
    chosen = means[evenly_spread(len(means), _CHANNELS)]
    return [float(f"{mean:.7g}") for mean in chosen.tolist()]
