"""Curves of runs in other people's trackers: CSV, TensorBoard, Weights & Biases, MLflow."""

from attnlab.lab.tracking.registry import TrackConfig as TrackConfig
from attnlab.lab.tracking.registry import Tracking as Tracking
from attnlab.lab.tracking.registry import check_trackers as check_trackers
from attnlab.lab.tracking.registry import chosen as chosen
from attnlab.lab.tracking.registry import list_trackers as list_trackers
from attnlab.lab.tracking.tracker import TrackedRun as TrackedRun
from attnlab.lab.tracking.tracker import Tracker as Tracker
