"""`tensorboard`: event files in the folder `tensorboard` of the run, by torch's SummaryWriter."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attnlab._files import write_whole
from attnlab.lab.tracking.tracker import TrackedRun, Tracker
from attnlab.results.epoch import EpochRecord

_FIRST = "train_loss"
"""A curve that every run has."""


# Not lightning-fabric's TensorBoardLogger: it writes nothing in a process whose RANK or
# SLURM_PROCID is not 0, which may train a run of its own.
class TensorBoardTracker(Tracker):
    """A point of each curve per epoch, on disk after each."""

    def __init__(self, run: TrackedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = run.folder / "tensorboard"
        self.last = _last_epoch(folder)
        # Points of an epoch in which the run was stopped do not count.
        self.writer = SummaryWriter(str(folder), purge_step=self.last + 1 if self.last else None)
        if not self.last:
            settings = json.dumps(run.settings, indent=1, default=str)
            self.writer.add_text("settings", f"```\n{settings}\n```")

    def write(self, history: Sequence[EpochRecord]) -> None:
        for record in history:
            if record.epoch > self.last:
                points = record.numbers()
                points[_FIRST] = points.pop(_FIRST)  # last: the epoch is there when it is
                for name, value in points.items():
                    self.writer.add_scalar(name, value, record.epoch)
                self.last = record.epoch
        self.writer.flush()

    def close(self, finished: bool) -> None:
        del finished
        self.writer.close()


def _last_epoch(folder: Path) -> int:
    """The last one whose points are there; 0 if there is none."""
    if not folder.is_dir():
        return 0
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events: Any = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    if _FIRST not in events.Tags()["scalars"]:
        return 0
    return max(event.step for event in events.Scalars(_FIRST))


# Not lightning-fabric's CSVLogger: it removes the table when a stopped run goes on, appends to it,
# so that a kill can cut a line off, and writes nothing in a process whose RANK or SLURM_PROCID is
# not 0, which may train a run of its own.
class CsvTracker(Tracker):
    """The whole table anew after each epoch."""

    def __init__(self, run: TrackedRun) -> None:
        self.file = run.folder / "curves.csv"

    def write(self, history: Sequence[EpochRecord]) -> None:
        rows = [{"epoch": record.epoch, **record.numbers()} for record in history]
        columns = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_whole(self.file, text.getvalue())

    def close(self, finished: bool) -> None:
        pass
