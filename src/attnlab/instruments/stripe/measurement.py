"""The gates of a finished network over test images: the numbers behind the stripe observation."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from attnlab._files import write_whole
from attnlab.instruments.config import MeasureConfig
from attnlab.instruments.measurement import Finding, Measurement
from attnlab.instruments.stripe import gate_statistics, gate_values
from attnlab.subject import Subject

_SAMPLE = 48
"""Images whose gates are kept for pictures."""


class Gates(Measurement):
    """One row per gate; per channel, and of some images, in gates.safetensors."""

    name = "gates"

    def settings(self, config: MeasureConfig) -> dict[str, int] | None:
        return {"images": config.images} if config.images else None

    def measure(self, subject: Subject, config: MeasureConfig, folder: Path) -> Finding:
        found = gate_values(subject.network, subject.inputs(config.images))
        if not found.values:
            return Finding(None)
        write_whole(folder / "gates.safetensors", save(_tensors(found.values)))
        rows = [row._asdict() for row in gate_statistics(found)]
        return Finding({"gates": rows, "different": found.different})


def _tensors(values: dict[str, Tensor]) -> dict[str, Tensor]:
    tensors = {f"{name}.mean": value.mean(0) for name, value in values.items()}
    tensors |= {f"{name}.spread": v.std(0, correction=0) for name, v in values.items()}
    tensors |= {f"{name}.sample": v[:_SAMPLE].clone() for name, v in values.items()}
    return {name: tensor.cpu().to(torch.float32) for name, tensor in tensors.items()}
