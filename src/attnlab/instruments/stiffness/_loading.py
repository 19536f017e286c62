"""The batches of any loader, as a network takes them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from attnlab.residuals.inputs import Inputs, inputs_of


def batches(
    loader: Iterable[Any], model: nn.Module, progress: bool | None, number: int | None
) -> Iterator[Inputs]:
    """The inputs of every batch for `model`, with a progress bar on a terminal; of `number`
    batches, if that is known."""
    with _progress(loader, progress, number) as watched:
        for batch in watched:
            yield from inputs_of(batch, model)


@contextmanager
def _progress(
    loader: Iterable[Any], wanted: bool | None, number: int | None
) -> Iterator[Iterable[Any]]:
    if wanted is None:
        wanted = sys.stderr.isatty()
    if not wanted:
        yield loader
        return
    from rich.console import Console
    from rich.progress import track

    yield track(loader, description="stiffness", total=number, console=Console(stderr=True))
