"""`mlflow`: a run of MLflow; without a server, in the database `mlflow.db` beside the runs."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from attnlab.lab.tracking.tracker import TrackedRun, Tracker, flat_settings
from attnlab.results.epoch import EpochRecord

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
                Param(name, str(value)[:_LONGEST])
                for name, value in flat_settings(run.settings).items()
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
