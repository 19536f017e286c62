"""The files of a run's directory, each read, proven by the manifest and named if damaged."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from attnlab._files import LONG_AGO, remove_partial, write_whole
from attnlab.results.base import Result
from attnlab.results.bundle import elsewhere
from attnlab.results.damage import (
    DamagedFileError,
    JsonObject,
    check_format,
    parsed_object,
    parsed_object_of,
    read_bytes,
    reading,
)
from attnlab.results.epoch import EpochRecord
from attnlab.results.identity import FILE as IDENTITY
from attnlab.results.identity import run_id_of
from attnlab.results.manifest import FILE as MANIFEST
from attnlab.results.manifest import Manifest, add_to_manifest, digest, read_manifest
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

M = TypeVar("M", bound=BaseModel)
MEASURED = "measured"
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


def check_tensors(path: Path, remedy: str) -> None:
    """Refuse a file whose size is not what it says that it holds; the numbers are not read."""
    from safetensors import safe_open

    with _tensors(path, remedy), safe_open(path, "np"):
        pass


def check_picture(path: Path, remedy: str) -> None:
    """Refuse a picture that is missing or not whole."""
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


class RunReader:
    """The files of a run. Each method gives what one of them says, something empty if it is not
    there, and a `DamagedFileError` if it cannot be read or is not this run's."""

    def __init__(self, directory: Path, expected: str = "") -> None:
        """`expected` is the id that the result must have; that of identity.json if empty."""
        self.directory, self.expected = directory, expected
        self.validated: dict[str, tuple[Measured, Result | None]] = {}
        """The measurements that were read, each with its result."""

    @property
    def has_result(self) -> bool:
        """Whether the run is finished, be its result damaged or not: the manifest, written last,
        is there as well."""
        files = (self.directory / name for name in ("result.json", MANIFEST))
        return all(file.is_file() for file in files)

    @cached_property
    def is_trained(self) -> bool:
        """Whether there is a result that is whole and surely this run's."""
        found = self.problems(MANIFEST, "result.json", "config.json", IDENTITY)
        return self.has_result and not any(True for _ in found)

    def problems(self, *names: str) -> Iterator[DamagedFileError]:
        """Yield what is wrong with each of these files."""
        readers = self.readers()
        for name in names:
            try:
                readers[name]()
            except DamagedFileError as error:
                yield error

    def readers(self) -> dict[str, Callable[[], object]]:
        """Return the reader of each file, by the file's name; it raises if the file is damaged."""
        measured = {
            f"{MEASURED}/{name}.json": lambda name=name: self.measured(name)
            for name in self.measurement_names()
        }
        return {
            MANIFEST: self._complete,
            "result.json": self.result if self.has_result else dict,
            "config.json": self.config,
            IDENTITY: self.identity,
            "data.json": self.data,
            "environment.json": self.starts,
            "metrics.jsonl": self.history,
            "failure.json": self.failure,
            **measured,
            PLACEMENT: self.placement,
            WEIGHTS: self.weights,
        }

    def result(self) -> RunResult:
        """The training's result. It must be there: ask `has_result` first."""
        path = self.directory / "result.json"
        data = read_bytes(path, _RESUME)
        found = parsed_object_of(path, data, _RESUME)
        with reading(path, _RESUME):
            check_format(found)
            check_numbers(found)
            result = RunResult(**found)
            check_measured(result)
            own = self.identity()
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
    def manifest(self) -> Manifest | None:
        """The checksums of all files; None of a run that is not finished."""
        return read_manifest(self.directory)

    def _complete(self) -> None:
        """Refuse a run that lacks a file of its manifest, unless the run counts without it."""
        manifest = self.manifest
        for name in () if manifest is None or not self.has_result else manifest.files:
            path = self.directory / name
            may_go = name == PLACEMENT or name.startswith(f"{MEASURED}/")
            may_go = may_go or name in elsewhere(self.directory)
            if not may_go and "/" not in name and not path.is_file():
                raise DamagedFileError(path, "it is not there", _ALL)

    def _prove_bytes(self, name: str, data: bytes, remedy: str) -> None:
        self._prove(name, lambda: hashlib.sha256(data).hexdigest(), remedy)

    def _prove(self, name: str, checksum: Callable[[], str], remedy: str) -> None:
        """Refuse a file of a finished run that is not what the manifest says."""
        if not self.has_result:
            return
        manifest = self.manifest
        expected = None if manifest is None else manifest.files.get(name)
        path = self.directory / name
        if expected is None:
            raise DamagedFileError(path, f"{MANIFEST} does not list it", remedy)
        if checksum() != expected:
            reason = f"it is not what was written: its checksum is not that of {MANIFEST}"
            raise DamagedFileError(path, reason, remedy)

    def identity(self) -> JsonObject:
        """Return what the run was made from; empty if that is not known."""
        return self._json(IDENTITY, _ALL)

    def history(self) -> tuple[EpochRecord, ...]:
        """One record per epoch that is done."""
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

    def config(self) -> RunSettings:
        """All settings, resolved."""
        return self._file("config.json", RunSettings, _ALL) or RunSettings()

    def data(self) -> RunData | None:
        """Facts about the images; None if they are not known."""
        return self._file("data.json", RunData, _LEFT_OUT)

    def starts(self) -> tuple[RunEnvironment, ...]:
        """The machine and the versions of every start."""
        found = self._file("environment.json", RunStarts, _LEFT_OUT)
        return () if found is None else found.starts

    def failure(self) -> RunFailure | None:
        """Why the last attempt ended; None if none failed."""
        remedy = "Remove it; log.txt beside it says what happened."
        return self._file("failure.json", RunFailure, remedy)

    def measured(self, name: str) -> Measured | None:
        """A measurement; None if it was not made."""
        path = self.directory / MEASURED / f"{name}.json"
        if not path.is_file():
            return None
        # Read once: to validate every measurement of 150 runs takes seconds, and a page asks for
        # damage, notes and results one after the other.
        if name not in self.validated:
            data = read_bytes(path, _AGAIN)
            found = parsed_object_of(path, data, _AGAIN)
            with reading(path, _AGAIN):
                measured = Measured(**found)
                result = found_result(measured)
            self._prove_bytes(f"{MEASURED}/{name}.json", data, _AGAIN)
            for file in () if result is None else result.files():
                check_picture(self.directory / file, _AGAIN)
                self._prove(file, partial(digest, self.directory / file), _AGAIN)
            self.validated[name] = measured, result
        return self.validated[name][0]

    def measurement_names(self) -> list[str]:
        """The names of all measurements that were made."""
        return sorted(file.stem for file in (self.directory / MEASURED).glob("*.json"))

    def weights(self) -> None:
        """Refuse a file of weights that is cut off; the numbers are not read."""
        path = self.directory / WEIGHTS
        if path.is_file():
            check_tensors(path, _WEIGHTS)

    def placement(self) -> PlacementRecord | None:
        """The blocks that a measurement chose; None if none did."""
        path = self.directory / PLACEMENT
        if not path.is_file():
            return None
        remedy = _SAME if self.has_result else _CHOSEN
        data = read_bytes(path, remedy)
        found = parsed_object_of(path, data, remedy)
        with reading(path, remedy):
            record = PlacementRecord(**found)
            if self.is_trained and record != self.result().placement:
                raise ValueError("it does not say what result.json says")
        self._prove_bytes(PLACEMENT, data, remedy)
        return record

    def _file(self, name: str, kind: type[M], remedy: str) -> M | None:
        """One of the small files; None if it is not there."""
        found = self._json(name, remedy)
        with reading(self.directory / name, remedy):
            return kind(**found) if found else None

    def _json(self, name: str, remedy: str) -> JsonObject:
        path = self.directory / name
        if not path.is_file():
            return {}
        data = read_bytes(path, remedy)
        found = parsed_object_of(path, data, remedy)
        if name != "failure.json":  # that of the last attempt, which may be one to measure
            self._prove_bytes(name, data, remedy)
        return found

    def write_measured(self, found: Measured) -> Path:
        """Store a measurement, in the place of an earlier one."""
        name = f"{MEASURED}/{found.measurement}.json"
        self.validated.pop(found.measurement, None)
        remove_partial(self.directory / MEASURED, LONG_AGO)
        path = write_whole(self.directory / name, found.model_dump_json(indent=1) + "\n")
        result = found_result(found)
        add_to_manifest(self.directory, [name, *(() if result is None else result.files())])
        self.__dict__.pop("manifest", None)
        return path

    def check_weights(self) -> None:
        """Refuse weights that are not those that the run wrote. All of them are read, so this is
        for those who use them."""
        self._prove(WEIGHTS, partial(digest, self.directory / WEIGHTS), _WEIGHTS)
