"""What entries share: small networks and images with fixed values, and results as plain data."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import attnlab

Plain = bool | int | float | str | list["Plain"] | dict[str, "Plain"] | None

MOST = 64
"""Numbers of a tensor that are stored as they are; of a larger one, `figures`."""

RECEIPT = (
    "sites parameters_before parameters_after macs_before macs_after max_change relative_change"
)
"""What every surgery says; its notes are words and may be put better."""


def plain(value: object) -> Plain:
    """As JSON has it."""
    if isinstance(value, Tensor):
        return plain(value.detach().cpu().numpy())
    if isinstance(value, np.ndarray):
        return plain(value.tolist()) if value.size <= MOST else figures(torch.as_tensor(value))
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain(dataclasses.asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, Iterable):
        return [plain(each) for each in value]
    raise TypeError(f"Expected plain data but got {type(value).__name__}.")


def figures(values: Tensor) -> dict[str, Plain]:
    """A few figures that no rearrangement of the values leaves alone."""
    flat = values.detach().double().flatten()
    weights = torch.linspace(-1, 1, len(flat), dtype=torch.float64)
    return {
        "shape": list(values.shape),
        "mean": flat.mean().item(),
        "size": flat.square().mean().sqrt().item(),
        "least": flat.min().item(),
        "most": flat.max().item(),
        "order": (flat * weights).mean().item(),
    }


def picked(source: object, names: str) -> dict[str, Any]:
    """Some fields of `source`, an object or a mapping, by their names; `old=new.part` where one
    has moved since the ledger was written."""
    found: dict[str, Any] = {}
    for name in names.split():
        stored, _, path = name.partition("=")
        found[stored] = _at(source, path or stored)
    return found


def _at(source: Any, path: str) -> Any:
    for name in path.split("."):
        source = source[name] if isinstance(source, Mapping) else getattr(source, name)
    return source


def receipt(found: object, more: str = "") -> dict[str, object]:
    """What surgery did. A change that is rounding is stored as such."""
    shown = picked(found, f"{RECEIPT} {more}")
    return {
        name: rounding(value) if name.endswith(("change", "error")) else value
        for name, value in shown.items()
    }


def rounding(value: object) -> object:
    """A number below 1e-5 of something of size 1, which float32 may give in any order of sums."""
    return "rounding" if isinstance(value, float) and abs(value) < 1e-5 else value


def network(
    name: str = "resnet20", gate: str | None = None, *, size: int = 16, **options: object
) -> nn.Module:
    """A network in float64 with values that depend on nothing but the order of its parameters."""
    torch.manual_seed(0)
    found = filled(attnlab.create(name).double().eval())
    if gate is not None:
        found, _ = attnlab.insert(found, gate, example=images(1, size), **options)
    return filled(found).eval()


def filled(found: nn.Module) -> nn.Module:
    """Give every parameter and statistic a value of its own; norms that begin at 0 move too."""
    generator = torch.Generator().manual_seed(0)

    def drawn(like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like)

    with torch.no_grad():
        for name, parameter in found.named_parameters():
            if name.endswith("bias"):
                parameter.copy_(0.1 * drawn(parameter))
            elif parameter.ndim > 1:
                parameter.copy_(drawn(parameter) * (2 / max(1, parameter[0].numel())) ** 0.5)
            else:
                parameter.copy_(0.7 + 0.2 * drawn(parameter))
        for name, buffer in found.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(0.1 * drawn(buffer))
            elif name.endswith("running_var"):
                buffer.copy_((0.1 * drawn(buffer)).exp())
    return found


def images(number: int = 8, size: int = 16, seed: int = 1) -> Tensor:
    """Images of different contrast, in float64."""
    generator = torch.Generator().manual_seed(seed)
    contrast = 0.5 + torch.rand(number, 1, 1, 1, generator=generator, dtype=torch.float64)
    shape = (number, 3, size, size)
    return contrast * torch.randn(shape, generator=generator, dtype=torch.float64)


def labelled(number: int = 16, size: int = 16, seed: int = 1) -> list[tuple[Tensor, Tensor]]:
    """Two batches of images with classes."""
    classes = (torch.arange(number) * 7) % 10
    halves = zip(images(number, size, seed).chunk(2), classes.chunk(2), strict=True)
    return list(halves)


def output(found: nn.Module, given: Tensor) -> dict[str, Plain]:
    """What a network answers."""
    found = found.eval()
    with torch.no_grad():
        return figures(found(given))


def weights(found: nn.Module) -> dict[str, object]:
    """A few figures of all its values, and its keys."""
    state = found.state_dict()
    values = torch.cat([value.double().flatten() for value in state.values()])
    return {"keys": len(state), "values": figures(values)}
