"""The trackers by name, and those of one run together."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from pydantic import field_validator, model_validator

from attnlab._errors import InputError, OptionError, check_options, unknown_name
from attnlab._extras import MissingPackageError
from attnlab._strict import Strict
from attnlab.lab.tracking.tensorboard import CsvTracker, TensorBoardTracker
from attnlab.lab.tracking.tracker import TrackedRun, Tracker
from attnlab.lab.tracking.wandb_run import MlflowTracker, WandbTracker
from attnlab.results.epoch import EpochRecord

TRACKERS: dict[str, type[Tracker]] = {
    "csv": CsvTracker,
    "tensorboard": TensorBoardTracker,
    "wandb": WandbTracker,
    "mlflow": MlflowTracker,
}
_PACKAGES = {"tensorboard": "tensorboard", "wandb": "wandb", "mlflow": "mlflow"}


class TrackConfig(Strict):
    """Which tracker, with its options; a name alone is one without options."""

    name: str
    """One of `list_trackers()`."""
    options: dict[str, bool | str] = {}

    @model_validator(mode="before")
    @classmethod
    def _written_short(cls, given: object) -> object:
        return {"name": given} if isinstance(given, str) else given

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in TRACKERS:
            raise unknown_name("tracker", name, TRACKERS)
        return name

    @model_validator(mode="after")
    def _takes(self) -> TrackConfig:
        build: Callable[..., object] = TRACKERS[self.name].__init__
        check_options(f"Tracker {self.name!r}", build, self.options, skip=("run",))
        return self


def list_trackers() -> tuple[str, ...]:
    """The names of all trackers."""
    return tuple(TRACKERS)


def chosen(trackers: Iterable[str | TrackConfig]) -> tuple[TrackConfig, ...]:
    """Names and settings as settings; each tracker once."""
    trackers = [trackers] if isinstance(trackers, str) else trackers
    found = tuple(TrackConfig(name=t) if isinstance(t, str) else t for t in trackers)
    names = [each.name for each in found]
    if len(set(names)) < len(names):
        raise OptionError(f"Expected each tracker once but got {', '.join(names)}.")
    return found


def check_trackers(trackers: Sequence[TrackConfig]) -> None:
    """Refuse a tracker whose package is missing, before anything is trained."""
    for each in trackers:
        package = _PACKAGES.get(each.name)
        if package is not None and importlib.util.find_spec(package) is None:
            raise MissingPackageError(
                f"This needs {package}, which is not installed: pip install 'attnlab[{package}]'."
            )


class Tracking:
    """The trackers of one run. One that fails while the run trains is left out from then on, with a
    word: a run does not end because its curves cannot be shown."""

    def __init__(self, trackers: Sequence[TrackConfig], run: TrackedRun) -> None:
        check_trackers(trackers)
        self.open: dict[str, Tracker] = {}
        for each in trackers:
            build: Callable[..., Tracker] = TRACKERS[each.name]
            try:
                self.open[each.name] = build(run, **each.options)
            except Exception as error:
                raise InputError(
                    f"The tracker {each.name!r} cannot be opened. {type(error).__name__}: {error} "
                    f"Correct that, or leave it out of 'track'."
                ) from error

    def write(self, history: Sequence[EpochRecord]) -> None:
        """Hand on all epochs so far."""
        for name, tracker in list(self.open.items()):
            with self._leaving_out(name):
                tracker.write(history)

    def close(self, finished: bool) -> None:
        """No epoch will follow in this process."""
        for name, tracker in list(self.open.items()):
            with self._leaving_out(name):
                tracker.close(finished)

    @contextmanager
    def _leaving_out(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.open.pop(name, None)
            print(
                f"The tracker {name!r} failed, and its curves end here; the run goes on. "
                f"{type(error).__name__}: {error}",
                file=sys.stderr,
                flush=True,
            )
