"""`wandb`: a run of Weights & Biases, in the folder `wandb` of the run, offline unless asked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from attnlab._files import write_whole
from attnlab.lab.tracking.tracker import TrackedRun, Tracker, flat_settings
from attnlab.results.epoch import EpochRecord


class WandbTracker(Tracker):
    """Nothing is sent unless `online`: `wandb sync` does that later. All parts of a run that was
    stopped have one id, so that they are one run there."""

    def __init__(
        self, run: TrackedRun, project: str = "attnlab", entity: str = "", online: bool = False
    ) -> None:
        import wandb

        folder = run.folder / "wandb"
        folder.mkdir(exist_ok=True)  # else it takes another one
        self.count = folder / "epochs.json"
        self.last: int = json.loads(self.count.read_text()) if self.count.is_file() else 0
        self.run: Any = wandb.init(
            project=project,
            entity=entity or None,
            mode="online" if online else "offline",
            id=run.run_id,
            name=run.label,
            group=run.group or None,
            config=flat_settings(run.settings),
            dir=str(run.folder),
            resume="allow" if online else None,
            save_code=False,
            # A run's folder tells of machine and commit; nothing else is looked at or caught.
            settings=wandb.Settings(
                console="off",
                disable_code=True,
                disable_git=True,
                silent=True,
                x_disable_stats=True,
            ),
        )

    def write(self, history: Sequence[EpochRecord]) -> None:
        for record in history:
            if record.epoch > self.last:
                self.run.log(record.numbers(), step=record.epoch)
                self.last = record.epoch
                write_whole(self.count, json.dumps(self.last))

    def close(self, finished: bool) -> None:
        self.run.finish(exit_code=0 if finished else 1)
