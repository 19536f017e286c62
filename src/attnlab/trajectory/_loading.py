"""From any loader to what a network takes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from attnlab._errors import InputError

Inputs = Tensor | dict[str, Any]


def device_of(model: nn.Module) -> torch.device:
    """Where the network lives."""
    parameter = next(model.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device


def batches(loader: Iterable[Any], device: torch.device, progress: bool | None) -> Iterator[Inputs]:
    """The inputs of every batch on `device`, with a progress bar on a terminal."""
    with _progress(loader, progress) as watched:
        for batch in watched:
            yield inputs_of(batch, device)


def inputs_of(batch: Any, device: torch.device) -> Inputs:
    """What of a batch the network takes: its first tensor, or all of a dictionary."""
    if isinstance(batch, Tensor):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {k: v.to(device) if isinstance(v, Tensor) else v for k, v in batch.items()}
    if isinstance(batch, tuple | list) and batch and isinstance(batch[0], Tensor):
        return batch[0].to(device)
    raise InputError(
        f"Expected batches that are a tensor, start with one, or are a dictionary of inputs but "
        f"got {type(batch).__name__}."
    )


def head(batch: Inputs, number: int) -> Inputs:
    """The first `number` inputs of a batch."""
    if isinstance(batch, Tensor):
        return batch[:number]
    return {k: v[:number] if isinstance(v, Tensor) else v for k, v in batch.items()}


def run(model: nn.Module, batch: Inputs) -> None:
    """One forward."""
    if isinstance(batch, Tensor):
        model(batch)
    else:
        model(**batch)


@contextmanager
def _progress(loader: Iterable[Any], wanted: bool | None) -> Iterator[Iterable[Any]]:
    if wanted is None:
        wanted = sys.stderr.isatty()
    if not wanted:
        yield loader
        return
    from rich.console import Console
    from rich.progress import track

    try:
        total: int | None = len(loader)  # type: ignore[arg-type]
    except TypeError:
        total = None
    yield track(loader, description="stiffness", total=total, console=Console(stderr=True))
