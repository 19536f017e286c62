"""The batches of any loader, as a network takes them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from attnlab.residuals.inputs import Inputs, inputs_of


def batches(loader: Iterable[Any], model: nn.Module, progress: bool | None) -> Iterator[Inputs]:
    """The inputs of every batch for `model`, with a progress bar on a terminal."""
    with _progress(loader, progress) as watched:
        for batch in watched:
            yield from inputs_of(batch, model)


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
