"""`attnlab fold --repair`: its epochs, and checkpoints next to the output until that is written."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnlab.surgery.repair import Distil


@contextmanager
def resumable(output: Path, settings: Distil) -> Iterator[Distil]:
    """The settings with which the same command goes on after a stop. The checkpoints go when the
    block ends well."""
    from attnlab.results.checkpoints import remove_checkpoints

    folder = output.with_suffix(".repair")
    told: list[int] = []

    def report(epoch: int, loss: float) -> None:
        if not told and epoch > 1:
            print(f"repair: goes on after epoch {epoch - 1}, from {folder}")
        told.append(epoch)
        print(f"repair: epoch {epoch}, loss {loss:.3g}", flush=True)

    try:
        yield replace(settings, report=report, checkpoints=folder)
    except KeyboardInterrupt:
        if told:
            print(
                f"stopped by Ctrl-C: {told[-1]} of {settings.epochs} epochs of the repair are "
                f"saved in {folder}. The same command goes on from there.",
                file=sys.stderr,
            )
        raise SystemExit(130) from None
    remove_checkpoints(folder)
