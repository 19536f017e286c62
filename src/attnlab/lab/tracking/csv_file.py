"""`csv`: the curves as one table, `curves.csv` in the run's folder."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from attnlab._files import write_whole
from attnlab.lab.tracking.tracker import TrackedRun, Tracker
from attnlab.results.epoch import EpochRecord


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
