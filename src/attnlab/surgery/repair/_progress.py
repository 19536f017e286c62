"""A repair between two epochs, to a checkpoint and back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from attnlab._errors import InputError
from attnlab.results.checkpoints import load_checkpoint, save_checkpoint


@dataclass
class Progress:
    """Everything that changes while a network is repaired."""

    network: nn.Module
    optimizer: torch.optim.Optimizer
    order: torch.Generator
    """Draws the order of the batches."""
    losses: list[float] = field(default_factory=list)
    """Of the epochs that are done."""
    began: float = field(default_factory=perf_counter)

    @property
    def seconds(self) -> float:
        """Since it began, without the time between a stop and its resumption."""
        return perf_counter() - self.began

    def save(self, folder: Path, identity: dict[str, str]) -> None:
        """Write a checkpoint of the epochs that are done."""
        content = {
            "repair": identity,
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "order": self.order.get_state(),
            "losses": self.losses,
            "seconds": self.seconds,
        }
        save_checkpoint(folder, len(self.losses), content)

    def resume(self, folder: Path, identity: dict[str, str]) -> None:
        """Take up the newest whole checkpoint, if there is one; refuse that of another repair."""
        content = load_checkpoint(folder)
        if content is None:
            return
        _check_identity(folder, content.get("repair"), identity)
        self.network.load_state_dict(content["network"])
        self.optimizer.load_state_dict(content["optimizer"])
        self.order.set_state(content["order"])
        self.losses += content["losses"]
        self.began -= content["seconds"]


def identity_of(
    network: nn.Module,
    moving: Iterable[nn.Parameter],
    inputs: Sequence[object],
    answers: Sequence[object],
    settings: object,
) -> dict[str, str]:
    """Return what decides the result of a repair that is about to start."""
    chosen = {id(parameter) for parameter in moving}
    kinds = [(n, type(m).__module__, type(m).__qualname__) for n, m in network.named_modules()]
    tensors = [
        (name, id(tensor) in chosen, tensor)
        for name, tensor in (*network.named_parameters(), *network.named_buffers())
    ]
    return {
        "settings": repr(settings),
        "network": _checksum((kinds, tensors)),
        "images": _checksum(inputs),
        "answers": _checksum(answers),
    }


def _check_identity(folder: Path, found: object, expected: dict[str, str]) -> None:
    if not isinstance(found, dict):
        raise InputError(
            f"The checkpoints in {str(folder)!r} are not of a repair. Expected another folder."
        )
    others = [f"other {name}" for name, value in expected.items() if found.get(name) != value]
    if not others:
        return
    if others[0] == "other settings":
        others[0] += f" ({found.get('settings')}, and now it is {expected['settings']})"
    raise InputError(
        f"The checkpoints in {str(folder)!r} are of another repair: {', '.join(others)}. Expected "
        f"another folder; or remove this one, to start again."
    )


def _checksum(values: object) -> str:
    """SHA-256 of all tensors in `values`, with their type and shape, and of what else is there."""
    leaves, structure = tree_flatten(values)
    whole = hashlib.sha256(repr(structure).encode())
    for value in leaves:
        if isinstance(value, Tensor):
            whole.update(f"{value.dtype} {tuple(value.shape)}\n".encode())
            plain = value.detach().cpu().contiguous().reshape(-1)
            whole.update(plain.view(torch.uint8).numpy().tobytes())
        else:
            whole.update(f"{value!r}\n".encode())
    return whole.hexdigest()
