"""A run's directory, read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from attnlab._errors import InputError
from attnlab._files import LONG_AGO, remove_partial, write_whole
from attnlab.results.base import FORMATS, Result
from attnlab.results.damage import (
    DamagedFileError,
    check_format,
    parsed_object,
    parsed_object_of,
    read_bytes,
    reading,
)
from attnlab.results.digest import Digest, EpochCurve, read_digest, signature, write_digest
from attnlab.results.epoch import EpochRecord
from attnlab.results.identity import FILE as IDENTITY
from attnlab.results.identity import run_id_of
from attnlab.results.manifest import FILE as MANIFEST
from attnlab.results.manifest import Manifest, add_to_manifest, digest, read_manifest
from attnlab.results.metric import Metric
from attnlab.results.result import FILE as PLACEMENT
from attnlab.results.result import (
    Measured,
    PlacementRecord,
    RunResult,
    check_measured,
    check_numbers,
    found_result,
)
from attnlab.results.run_files import RunData, RunEnvironment, RunFailure, RunSettings, RunStarts


def check_tensors(path: Path, remedy: str) -> None:
    """Whether the size of the file fits what it says that it holds; the numbers are not read."""
    from safetensors import safe_open

    with _tensors(path, remedy), safe_open(path, "np"):
        pass


def check_picture(path: Path, remedy: str) -> None:
    from PIL import Image

    if not path.is_file():
        raise DamagedFileError(path, "it is not there", remedy)
    try:
        with Image.open(path) as picture:
            picture.verify()
    # ImportError: Ultralytics, once imported, looks for a package that reads what Pillow does not.
    except (OSError, SyntaxError, ValueError, ImportError, Image.DecompressionBombError):
        raise DamagedFileError(path, "it is not a whole picture", remedy) from None


@contextmanager
def _tensors(path: Path, remedy: str) -> Iterator[None]:
    from safetensors import SafetensorError

    try:
        with reading(path, remedy):
            yield
    except SafetensorError as error:
        raise DamagedFileError(path, str(error).rstrip("."), remedy) from None


T = TypeVar("T")
R = TypeVar("R", bound=Result)
M = TypeVar("M", bound=BaseModel)
MEASURED = "measured"
_LAST = 3
"""Epochs whose time a digest keeps."""
WEIGHTS = "model.safetensors"
_RESUME = (
    "Remove it and run the study again: the run goes on from its last checkpoint, or starts anew."
)
_ALL = "Remove the run's folder and run the study again, which trains it anew."
_LEFT_OUT = "What it says is left out; the result counts."
_AGAIN = "`attnlab study run` and `attnlab study measure` measure it again."
_CHOSEN = "`attnlab study run` chooses the blocks again."
_SAME = "Remove it: result.json says the same."
_WEIGHTS = (
    "Remove it and result.json and run the study again: the weights are in the last checkpoint, or "
    "are trained anew."
)


@dataclass(frozen=True)
class StoredRun:
    """What a run's directory says. Every part may be missing while the run is not finished, and a
    part that is damaged is taken as missing: `damage` names it."""

    directory: Path
    expected: str = ""
    """The id that its result must have; that of identity.json beside it, if this is empty."""
    digested: bool = False
    """Whether it is read by its digest, if it is finished and whole."""

    @property
    def has_result(self) -> bool:
        """Whether the run is finished, be its result damaged or not: the manifest, written last,
        is there as well."""
        files = (self.directory / name for name in ("result.json", MANIFEST))
        return all(file.is_file() for file in files)

    @cached_property
    def is_trained(self) -> bool:
        """Whether there is a result that is whole and surely this run's."""
        if self._digest is not None:
            return True
        found = self._problems(MANIFEST, "result.json", "config.json", IDENTITY)
        return self.has_result and not any(True for _ in found)

    @property
    def finished_at(self) -> float | None:
        """When it was finished, in seconds since 1970; None if it is not, or is damaged."""
        if self._digest is not None:
            found: float | None = self._digest.facts["finished"]
            return found
        return self._manifest.finished if self.is_trained and self._manifest else None

    @cached_property
    def result(self) -> RunResult:
        """The training's result."""
        if self._digest is not None:
            return _result_of(self._digest.facts["result"])
        path = self.directory / "result.json"
        if not self.has_result:
            missing = self.directory / MANIFEST if path.is_file() else path
            raise InputError(
                f"There is no {missing}: the run is not finished, or not a run's directory."
            )
        return self._result()

    @cached_property
    def history(self) -> tuple[EpochRecord, ...]:
        """One record per epoch that is done."""
        return _whole(self._history, ())

    @cached_property
    def curve(self) -> EpochCurve:
        """The epochs of a finished run, without what was measured after each."""
        if self._digest is not None:
            found = self._digest.facts["curve"]
            return EpochCurve(**{name: tuple(values) for name, values in found.items()})
        return _curve(self.history, self.result.metric.name)

    @cached_property
    def config(self) -> RunSettings:
        """All settings, resolved."""
        if self._digest is not None:
            return RunSettings(**self._digest.facts["config"])
        return _whole(self._config, RunSettings())

    @cached_property
    def data(self) -> RunData | None:
        """Facts about the images; None if they are not known."""
        if self._digest is not None:
            found = self._digest.facts["data"]
            return None if found is None else RunData(**found)
        return _whole(self._data, None)

    @property
    def environment(self) -> RunEnvironment | None:
        """The machine and the versions of the last start; None if they are not known."""
        return self.starts[-1] if self.starts else None

    @cached_property
    def starts(self) -> tuple[RunEnvironment, ...]:
        """The machine and the versions of every start; none if they are not known."""
        if self._digest is not None:
            return tuple(_start(json.dumps(each)) for each in self._digest.facts["starts"])
        return _whole(self._starts, ())

    @property
    def failure(self) -> RunFailure | None:
        """Why the last attempt ended; None if none failed."""
        return _whole(self._failure, None)

    def measured(self, name: str) -> Measured | None:
        """A measurement; None where it was not made."""
        return _whole(lambda: self._measured(name), None)

    def measured_result(self, kind: type[R]) -> R | None:
        """The result of an instrument; None where it was not measured, or does not apply."""
        name = kind.instrument()
        if self.measured(name) is None:
            return None
        found = self._validated[name][1]
        return found if isinstance(found, kind) else None

    def slim_result(self, kind: type[R]) -> R | None:
        """The same without its bulk."""
        if self.is_digested:
            slim = self._slim_result(kind.instrument())
            noted = self.noted.get(kind.instrument())
            if isinstance(slim, kind) or noted is None or noted.found is None:
                return slim if isinstance(slim, kind) else None
        found = self.measured_result(kind)
        return None if found is None else found.slim()

    @cached_property
    def measurements(self) -> dict[str, Measured]:
        """All that were made, by name."""
        found = ((name, self.measured(name)) for name in self._measurement_names())
        return {name: measured for name, measured in found if measured is not None}

    @cached_property
    def noted(self) -> dict[str, Measured]:
        """The same, for its settings and notes: of a run that is read by its digest, what was found
        is left out."""
        if self._digest is None:
            return self.measurements
        return {
            name: Measured.model_construct(**{**each, "notes": tuple(each["notes"])})
            for name, each in self._digest.facts["measured"].items()
        }

    @cached_property
    def placement(self) -> PlacementRecord | None:
        """Where the gates went, when that was chosen by a measurement; by the result where there is
        one, which says the same."""
        if self.is_trained and self.result.placement is not None:
            return self.result.placement
        return _whole(self._placement, None)

    @cached_property
    def damage(self) -> tuple[DamagedFileError, ...]:
        """Every file that cannot be read, or is not this run's."""
        if self._digest is not None:
            return ()
        return tuple({each.path: each for each in self._problems(*self._readers())}.values())

    def check(self, *names: str) -> None:
        """Refuse a damaged file, for those who cannot do without it."""
        for problem in self._problems(*names):
            raise problem

    def write_measured(self, found: Measured) -> Path:
        """Store a measurement, in the place of an earlier one."""
        name = f"{MEASURED}/{found.measurement}.json"
        self._validated.pop(found.measurement, None)
        remove_partial(self.directory / MEASURED, LONG_AGO)
        path = write_whole(self.directory / name, found.model_dump_json(indent=1) + "\n")
        result = found_result(found)
        add_to_manifest(self.directory, [name, *(() if result is None else result.files())])
        self.__dict__.pop("_manifest", None)
        return path

    def check_weights(self) -> None:
        """Refuse weights that are not those that the run wrote. All of them are read, so this is
        for those who use them."""
        self._prove(WEIGHTS, partial(digest, self.directory / WEIGHTS), _WEIGHTS)

    @property
    def is_digested(self) -> bool:
        """Whether it is finished and whole, and read by its digest."""
        return self._digest is not None

    @cached_property
    def _digest(self) -> Digest | None:
        """Of a run that is finished and whole; made now if there is none. None if it is not read
        by that."""
        if not self.digested or not self.has_result:
            return None
        found = read_digest(self.directory)
        if found is None:
            found = self._make_digest()
        ours = found is not None and self.expected in ("", found.facts["result"]["run_id"])
        return found if ours else None

    def _make_digest(self) -> Digest | None:
        before = signature(self.directory)
        run = StoredRun(self.directory, self.expected)
        if before is None or not run.is_trained or run.damage:
            return None
        if run._identity() and run_id_of(run._identity()) != run.result.run_id:
            return None
        facts = {
            "result": run.result.model_dump(mode="json"),
            "config": run.config.given(),
            "data": None if run.data is None else run.data.given(),
            "finished": run.finished_at,
            "starts": [start.given() for start in run.starts],
            "curve": asdict(_curve(run.history, run.result.metric.name)),
            "measured": {
                name: {
                    **noted.model_dump(mode="json", exclude={"found"}),
                    "found": None if noted.found is None else {},
                }
                for name, noted in run.measurements.items()
            },
        }
        slim = {
            name: json.dumps(json.loads(result.slim().to_json()), ensure_ascii=False)
            for name, (_, result) in run._validated.items()
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

    def _problems(self, *names: str) -> Iterator[DamagedFileError]:
        readers = self._readers()
        for name in names:
            try:
                readers[name]()
            except DamagedFileError as error:
                yield error

    def _readers(self) -> dict[str, Callable[[], Any]]:
        """Each raises where its file is damaged."""
        measured = {
            f"{MEASURED}/{name}.json": lambda name=name: self._measured(name)
            for name in self._measurement_names()
        }
        return {
            MANIFEST: self._complete,
            "result.json": self._result if self.has_result else dict,
            "config.json": self._config,
            IDENTITY: self._identity,
            "data.json": self._data,
            "environment.json": self._starts,
            "metrics.jsonl": self._history,
            "failure.json": self._failure,
            **measured,
            PLACEMENT: self._placement,
            WEIGHTS: self._weights,
        }

    def _result(self) -> RunResult:
        path = self.directory / "result.json"
        data = read_bytes(path, _RESUME)
        found = parsed_object_of(path, data, _RESUME)
        with reading(path, _RESUME):
            check_format(found)
            check_numbers(found)
            result = RunResult(**found)
            check_measured(result)
            own = self._identity()
            expected = self.expected or (run_id_of(own) if own else result.run_id)
            if result.run_id != expected:
                raise ValueError(f"it is of run {result.run_id}, expected {expected}")
            self._check_by_metrics(result)
        self._prove_bytes("result.json", data, _RESUME)
        return result

    def _check_by_metrics(self, result: RunResult) -> None:
        """Refuse a result that the last line of metrics.jsonl denies. Only that line is read:
        results are asked for much more often than curves."""
        path = self.directory / "metrics.jsonl"
        lines = path.read_bytes().splitlines() if path.is_file() else []
        try:
            last = parsed_object(lines[-1].decode()).get("test", {}) if lines else {}
        except (ValueError, RecursionError):  # that file is damaged, and says so itself
            return
        for name, value in result.values.items():
            if isinstance(last, dict) and last.get(name, value) != value:
                raise ValueError(f"{name} is {value}, but metrics.jsonl says {last[name]}")

    @cached_property
    def _manifest(self) -> Manifest | None:
        return read_manifest(self.directory)

    def _complete(self) -> None:
        """That nothing is missing of what the manifest lists, but for what can do without it."""
        manifest = self._manifest
        for name in () if manifest is None or not self.has_result else manifest.files:
            path = self.directory / name
            may_go = name == PLACEMENT or name.startswith(f"{MEASURED}/")
            if not may_go and "/" not in name and not path.is_file():
                raise DamagedFileError(path, "it is not there", _ALL)

    def _prove_bytes(self, name: str, data: bytes, remedy: str) -> None:
        self._prove(name, lambda: hashlib.sha256(data).hexdigest(), remedy)

    def _prove(self, name: str, checksum: Callable[[], str], remedy: str) -> None:
        """Refuse a file of a finished run that is not what the manifest says."""
        if not self.has_result:
            return
        manifest = self._manifest
        expected = None if manifest is None else manifest.files.get(name)
        path = self.directory / name
        if expected is None:
            raise DamagedFileError(path, f"{MANIFEST} does not list it", remedy)
        if checksum() != expected:
            reason = f"it is not what was written: its checksum is not that of {MANIFEST}"
            raise DamagedFileError(path, reason, remedy)

    def _identity(self) -> dict[str, Any]:
        return self._json(IDENTITY, _ALL)

    def _history(self) -> tuple[EpochRecord, ...]:
        path = self.directory / "metrics.jsonl"
        if not path.is_file():
            return ()
        data = read_bytes(path, _LEFT_OUT)
        with reading(path, _LEFT_OUT):
            lines = data.decode("utf-8").splitlines()
            if not lines:
                raise ValueError("it is empty")
            found = tuple(EpochRecord(**parsed_object(line)) for line in lines if line.strip())
        self._prove_bytes("metrics.jsonl", data, _LEFT_OUT)
        return found

    def _config(self) -> RunSettings:
        return self._file("config.json", RunSettings, _ALL) or RunSettings()

    def _data(self) -> RunData | None:
        return self._file("data.json", RunData, _LEFT_OUT)

    def _starts(self) -> tuple[RunEnvironment, ...]:
        found = self._file("environment.json", RunStarts, _LEFT_OUT)
        return () if found is None else found.starts

    def _failure(self) -> RunFailure | None:
        remedy = "Remove it; log.txt beside it says what happened."
        return self._file("failure.json", RunFailure, remedy)

    def _measured(self, name: str) -> Measured | None:
        path = self.directory / MEASURED / f"{name}.json"
        if not path.is_file():
            return None
        # Read once: to validate every measurement of 150 runs takes seconds, and a page asks for
        # damage, notes and results one after the other.
        if name not in self._validated:
            data = read_bytes(path, _AGAIN)
            found = parsed_object_of(path, data, _AGAIN)
            with reading(path, _AGAIN):
                measured = Measured(**found)
                result = found_result(measured)
            self._prove_bytes(f"{MEASURED}/{name}.json", data, _AGAIN)
            for file in () if result is None else result.files():
                check_picture(self.directory / file, _AGAIN)
                self._prove(file, partial(digest, self.directory / file), _AGAIN)
            self._validated[name] = measured, result
        return self._validated[name][0]

    @cached_property
    def _validated(self) -> dict[str, tuple[Measured, Result | None]]:
        """The measurements that were read, each with its result."""
        return {}

    def _measurement_names(self) -> list[str]:
        return sorted(file.stem for file in (self.directory / MEASURED).glob("*.json"))

    def _weights(self) -> None:
        path = self.directory / WEIGHTS
        if path.is_file():
            check_tensors(path, _WEIGHTS)

    def _placement(self) -> PlacementRecord | None:
        path = self.directory / PLACEMENT
        if not path.is_file():
            return None
        remedy = _SAME if self.has_result else _CHOSEN
        data = read_bytes(path, remedy)
        found = parsed_object_of(path, data, remedy)
        with reading(path, remedy):
            record = PlacementRecord(**found)
            if self.is_trained and record != self.result.placement:
                raise ValueError("it does not say what result.json says")
        self._prove_bytes(PLACEMENT, data, remedy)
        return record

    def _file(self, name: str, kind: type[M], remedy: str) -> M | None:
        """One of the small files; None if it is not there."""
        found = self._json(name, remedy)
        with reading(self.directory / name, remedy):
            return kind(**found) if found else None

    def _json(self, name: str, remedy: str) -> dict[str, Any]:
        path = self.directory / name
        if not path.is_file():
            return {}
        data = read_bytes(path, remedy)
        found = parsed_object_of(path, data, remedy)
        if name != "failure.json":  # that of the last attempt, which may be one to measure
            self._prove_bytes(name, data, remedy)
        return found


def _curve(history: Sequence[EpochRecord], metric: str) -> EpochCurve:
    last = history[-_LAST:]
    return EpochCurve(
        rates=tuple(record.lr for record in history),
        values=tuple(record.test.get(metric) for record in history),
        losses=tuple(record.train_loss for record in history),
        seconds=tuple(record.seconds for record in last),
    )


def _result_of(found: dict[str, Any]) -> RunResult:
    """A result that was validated before, and whose checksum is right: not validated again."""
    metrics = tuple(_metric(json.dumps(each)) for each in found["metrics"])
    placement = found["placement"]
    if placement is not None:
        return RunResult(**found)
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
