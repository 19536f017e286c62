"""Networks of Ultralytics, and the settings that let them train within seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tests.bridges.boxes import SIZE

from attnlab.surgery.insertion import attachments


def yolo(name: str | Path = "yolo11n.yaml") -> Any:
    from ultralytics import YOLO

    torch.manual_seed(0)
    return YOLO(name)


def trained_somewhat(network: torch.nn.Module) -> None:
    """Norms and gates as if they had been trained, so that no fusion is trivial."""
    draw = torch.Generator().manual_seed(1)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            for tensor, low in ((module.weight, 0.5), (module.running_var, 0.5)):
                tensor.data.copy_(low + torch.rand(tensor.shape, generator=draw))
            for tensor in (module.bias, module.running_mean):
                tensor.data.copy_(0.2 * torch.randn(tensor.shape, generator=draw))
    for _, gate in attachments(network):
        for parameter in gate.parameters():
            parameter.data.add_(0.3 * torch.randn(parameter.shape, generator=draw))


def images(number: int = 2, channels: int = 3) -> torch.Tensor:
    return torch.rand(number, channels, SIZE, SIZE, generator=torch.Generator().manual_seed(2))


def answer(network: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        found = network.eval()(x)
    while isinstance(found, list | tuple):
        found = found[0]
    return found


def options(folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "imgsz": SIZE,
        "batch": 4,
        "device": "cpu",
        "workers": 0,
        "project": str(folder),
        "plots": False,
        "verbose": False,
        "amp": False,
        **more,
    }
