"""Curves of runs in other people's trackers: CSV, TensorBoard, Weights & Biases, MLflow."""

from attnlab.track.registry import TrackConfig as TrackConfig
from attnlab.track.registry import Tracking as Tracking
from attnlab.track.registry import check_installed as check_installed
from attnlab.track.registry import chosen as chosen
from attnlab.track.registry import list_trackers as list_trackers
from attnlab.track.tracker import TrackedRun as TrackedRun
from attnlab.track.tracker import Tracker as Tracker
