"""A run's directory, as tables, pages and later measurements see it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TypeVar

from attnlab._errors import InputError
from attnlab.results.base import FORMATS, Result
from attnlab.results.damage import DamagedFileError, JsonObject
from attnlab.results.digest import (
    Digest,
    DigestFacts,
    EpochCurve,
    read_digest,
    signature,
    write_digest,
)
from attnlab.results.epoch import EpochRecord
from attnlab.results.identity import run_id_of
from attnlab.results.manifest import FILE as MANIFEST
from attnlab.results.metric import Metric
from attnlab.results.result import Measured, PlacementRecord, RunResult
from attnlab.results.run_files import RunData, RunEnvironment, RunFailure, RunSettings
from attnlab.results.run_reader import RunReader

T = TypeVar("T")
R = TypeVar("R", bound=Result)
_LAST = 3
"""Epochs whose time a digest keeps."""


@dataclass(frozen=True)
class StoredRun:
    """What a run's directory says. Every part may be missing while the run is not finished, and a
    part that is damaged is taken as missing: `damage` names it."""

    directory: Path
    expected: str = ""
    """The id that its result must have; that of identity.json beside it, if this is empty."""
    digested: bool = False
    """Whether it is read by its digest, if it is finished and whole."""

    @cached_property
    def _reader(self) -> RunReader:
        return RunReader(self.directory, self.expected)

    @property
    def has_result(self) -> bool:
        """Whether the run is finished, be its result damaged or not."""
        return self._reader.has_result

    @cached_property
    def is_trained(self) -> bool:
        """Whether there is a result that is whole and surely this run's."""
        return self._digest is not None or self._reader.is_trained

    @property
    def finished_at(self) -> float | None:
        """When it was finished, in seconds since 1970; None if it is not, or is damaged."""
        if self._digest is not None:
            return self._digest.facts.finished
        manifest = self._reader.manifest if self.is_trained else None
        return None if manifest is None else manifest.finished

    @cached_property
    def result(self) -> RunResult:
        """The training's result."""
        if self._digest is not None:
            return _result_of(self._digest.facts.result)
        path = self.directory / "result.json"
        if not self.has_result:
            missing = self.directory / MANIFEST if path.is_file() else path
            raise InputError(
                f"There is no {missing}: the run is not finished, or not a run's directory."
            )
        return self._reader.result()

    @cached_property
    def history(self) -> tuple[EpochRecord, ...]:
        """One record per epoch that is done."""
        return _whole(self._reader.history, ())

    @cached_property
    def curve(self) -> EpochCurve:
        """The epochs of a finished run, without what was measured after each."""
        if self._digest is not None:
            found = self._digest.facts.curve
            return EpochCurve(**{name: tuple(values) for name, values in found.items()})
        return _curve(self.history, self.result.metric.name)

    @cached_property
    def config(self) -> RunSettings:
        """All settings, resolved."""
        if self._digest is not None:
            return RunSettings(**self._digest.facts.config)
        return _whole(self._reader.config, RunSettings())

    @cached_property
    def data(self) -> RunData | None:
        """Facts about the images; None if they are not known."""
        if self._digest is not None:
            found = self._digest.facts.data
            return None if found is None else RunData(**found)
        return _whole(self._reader.data, None)

    @property
    def environment(self) -> RunEnvironment | None:
        """The machine and the versions of the last start; None if they are not known."""
        return self.starts[-1] if self.starts else None

    @cached_property
    def starts(self) -> tuple[RunEnvironment, ...]:
        """The machine and the versions of every start; none if they are not known."""
        if self._digest is not None:
            return tuple(_start(json.dumps(each)) for each in self._digest.facts.starts)
        return _whole(self._reader.starts, ())

    @property
    def failure(self) -> RunFailure | None:
        """Why the last attempt ended; None if none failed."""
        return _whole(self._reader.failure, None)

    def measured(self, name: str) -> Measured | None:
        """A measurement; None where it was not made."""
        return _whole(lambda: self._reader.measured(name), None)

    def measured_result(self, kind: type[R]) -> R | None:
        """The result of an instrument; None where it was not measured, or does not apply."""
        name = kind.instrument()
        if self.measured(name) is None:
            return None
        found = self._reader.validated[name][1]
        return found if isinstance(found, kind) else None

    def slim_result(self, kind: type[R]) -> R | None:
        """Return what a measurement of this kind found, without what only a picture of this network
        shows."""
        if self.is_digested:
            slim = self._slim_result(kind.instrument())
            noted = self.noted.get(kind.instrument())
            if isinstance(slim, kind) or noted is None or noted.found is None:
                return slim if isinstance(slim, kind) else None
        found = self.measured_result(kind)
        return None if found is None else found.slim()

    @cached_property
    def measurements(self) -> dict[str, Measured]:
        """All measurements that were made, by name."""
        found = ((name, self.measured(name)) for name in self._reader.measurement_names())
        return {name: measured for name, measured in found if measured is not None}

    @cached_property
    def noted(self) -> dict[str, Measured]:
        """All measurements by name, for their settings and notes: of a run that is read by its
        digest, what they found is left out."""
        if self._digest is None:
            return self.measurements
        return {
            name: Measured.model_construct(**{**each, "notes": tuple(each["notes"])})
            for name, each in self._digest.facts.measured.items()
        }

    @cached_property
    def placement(self) -> PlacementRecord | None:
        """Where the gates went, if a measurement chose it; as the result says it, if there is
        one."""
        if self.is_trained and self.result.placement is not None:
            return self.result.placement
        return _whole(self._reader.placement, None)

    @cached_property
    def damage(self) -> tuple[DamagedFileError, ...]:
        """Every file that cannot be read, or is not this run's."""
        if self._digest is not None:
            return ()
        found = self._reader.problems(*self._reader.readers())
        return tuple({each.path: each for each in found}.values())

    def check(self, *names: str) -> None:
        """Refuse a damaged file, for those who cannot do without it."""
        for problem in self._reader.problems(*names):
            raise problem

    def write_measured(self, found: Measured) -> Path:
        """Store a measurement, in the place of an earlier one."""
        return self._reader.write_measured(found)

    def check_weights(self) -> None:
        """Refuse weights that are not those that the run wrote; all of them are read."""
        self._reader.check_weights()

    @property
    def is_digested(self) -> bool:
        """Whether it is finished and whole, and read by its digest."""
        return self._digest is not None

    @cached_property
    def _digest(self) -> Digest | None:
        """The digest of a run that is finished and whole; made now if there is none. None if it is
        not read by that."""
        if not self.digested or not self.has_result:
            return None
        found = read_digest(self.directory)
        if found is None:
            found = self._make_digest()
        ours = found is not None and self.expected in ("", found.facts.result["run_id"])
        return found if ours else None

    def _make_digest(self) -> Digest | None:
        before = signature(self.directory)
        run = StoredRun(self.directory, self.expected)
        if before is None or not run.is_trained or run.damage or run.finished_at is None:
            return None
        identity = run._reader.identity()
        if identity and run_id_of(identity) != run.result.run_id:
            return None
        facts = DigestFacts(
            result=run.result.model_dump(mode="json"),
            config=run.config.given(),
            data=None if run.data is None else run.data.given(),
            finished=run.finished_at,
            starts=[start.given() for start in run.starts],
            curve=asdict(_curve(run.history, run.result.metric.name)),
            measured={name: _noted(each) for name, each in run.measurements.items()},
        )
        slim = {
            name: json.dumps(json.loads(result.slim().to_json()), ensure_ascii=False)
            for name, (_, result) in run._reader.validated.items()
            if result is not None
        }
        return write_digest(self.directory, before, facts, slim)

    @cached_property
    def _slim(self) -> dict[str, Result | None]:
        """The results of the digest that were asked for, by instrument."""
        return {}

    def _slim_result(self, name: str) -> Result | None:
        assert self._digest is not None
        if name not in self._slim:
            content = json.loads(self._digest.measured.get(name, "{}"))
            kind = FORMATS.get(content.pop("format", ""))
            self._slim[name] = None if kind is None else kind.validated(content)
        return self._slim[name]


def _curve(history: Sequence[EpochRecord], metric: str) -> EpochCurve:
    last = history[-_LAST:]
    return EpochCurve(
        rates=tuple(record.lr for record in history),
        values=tuple(record.test.get(metric) for record in history),
        losses=tuple(record.train_loss for record in history),
        seconds=tuple(record.seconds for record in last),
    )


def _noted(measured: Measured) -> JsonObject:
    """A measurement without what was found, but for whether anything was."""
    known = measured.model_dump(mode="json", exclude={"found"})
    return {**known, "found": None if measured.found is None else {}}


def _result_of(found: JsonObject) -> RunResult:
    """A result that was validated before, and whose checksum is right: not validated again."""
    if found["placement"] is not None:
        return RunResult(**found)
    metrics = tuple(_metric(json.dumps(each)) for each in found["metrics"])
    return RunResult.model_construct(**{**found, "metrics": metrics})


@cache
def _start(text: str) -> RunEnvironment:
    """Thousands of runs are made on the same few machines."""
    return RunEnvironment(**json.loads(text))


@cache
def _metric(text: str) -> Metric:
    """Thousands of runs have the same few metrics."""
    return Metric(**json.loads(text))


def _whole(read: Callable[[], T], otherwise: T) -> T:
    try:
        return read()
    except DamagedFileError:
        return otherwise
