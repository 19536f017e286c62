"""`wandb`: a run of Weights & Biases, in the folder `wandb` of the run, offline unless asked."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from typing import Any

from attnlab._files import write_whole
from attnlab.lab.tracking.tracker import TrackedRun, Tracker
from attnlab.results.epoch import EpochRecord
from attnlab.results.identity import flat_settings


class WandbTracker(Tracker):
    """Sends nothing unless `online`: `wandb sync` does that later. All parts of a run that was
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
            config=dict(flat_settings(run.settings)),
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


_ID = "attnlab.run_id"
_FIRST = "train_loss"
"""A curve that every run has."""
_LONGEST = 500
"""Letters of a setting: what older stores take."""


class MlflowTracker(Tracker):
    """A run is found again by its id, and what it has already is read from there."""

    def __init__(self, run: TrackedRun, uri: str = "", experiment: str = "") -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        beside = (run.folder.parent / "mlflow.db").resolve()
        uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{beside.as_posix()}"
        self.client: Any = MlflowClient(tracking_uri=uri)
        self.metric: Any = Metric
        experiment = experiment or run.group or "attnlab"
        found = self.client.get_experiment_by_name(experiment)
        where = found.experiment_id if found else self.client.create_experiment(experiment)
        earlier = self.client.search_runs([where], f"tags.`{_ID}` = '{run.run_id}'")
        if earlier:
            self.run_id = earlier[0].info.run_id
            self.client.update_run(self.run_id, "RUNNING")
        else:
            self.run_id = self.client.create_run(
                where, tags={_ID: run.run_id}, run_name=run.label
            ).info.run_id
            settings = [
                Param(name, str(value)[:_LONGEST]) for name, value in flat_settings(run.settings)
            ]
            self.client.log_batch(self.run_id, params=settings)
        points = self.client.get_metric_history(self.run_id, _FIRST)
        self.last = max((point.step for point in points), default=0)

    def write(self, history: Sequence[EpochRecord]) -> None:
        now = int(1000 * time.time())
        for record in history:
            if record.epoch > self.last:
                points = [
                    self.metric(name, value, now, record.epoch)
                    for name, value in record.numbers().items()
                ]
                # The epoch is there when this one is.
                points.sort(key=lambda point: point.key == _FIRST)
                self.client.log_batch(self.run_id, metrics=points)
                self.last = record.epoch

    def close(self, finished: bool) -> None:
        self.client.set_terminated(self.run_id, "FINISHED" if finished else "KILLED")
