"""Results at an address of an object store, and the folder of this machine that mirrors them.

Runs are worked on and read in the folder, as runs of this machine are; what others need of them is
at the address:

ADDRESS/finished/RUN.tar.gz    every file of a finished run but its weights; a run counts when this
                               object is there, which is written once, after all others
ADDRESS/unfinished/RUN.tar.gz  the same of a run that goes on, as of its last checkpoint
ADDRESS/heavy/RUN/…            weights and the last checkpoint, named by their content
ADDRESS/claims/RUN~3.json      who works on a run (`attnlab.lab.study.lease`)
ADDRESS/studies/NAME.tar.gz    study.json, plans.jsonl, speed.json
ADDRESS/studies/NAME/…         the table and the page, for people

Three listings say what is new. The folder may be removed at any time when nothing is worked on.
"""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path

from filelock import FileLock, Timeout

from attnlab._address import is_address, local_path
from attnlab._errors import InputError
from attnlab._files import whole_file, write_whole
from attnlab._folders import cache_folder
from attnlab.results.bundle import (
    ELSEWHERE,
    MANIFEST,
    RECORD,
    Heavy,
    elsewhere,
    pack,
    small_files,
    unpack,
    write_files,
)
from attnlab.results.manifest import digest
from attnlab.results.objects import Objects, StoreError

FINISHED, UNFINISHED, STUDIES, HEAVY = "finished", "unfinished", "studies", "heavy"
_ENDING = ".tar.gz"
_WEIGHTS = "model.safetensors"
_OF_A_STUDY = ("study.json", "plans.jsonl", "speed.json")
_FOR_PEOPLE = ("table.json", "report.html", "report.csv", "report.tex")
_ADDRESS, _INDEX = ".address", ".index.json"
_AT_A_TIME = 64
_WRITERS = 16
"""A file that is sure to be on the disk is waited for; many at a time wait together."""
_FRESH = 3.0
"""Seconds for which what was listed is taken as it was, where one only looks."""


class Mirror:
    """The results at an address, and the folder of this machine with them."""

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        self.objects = Objects(self.address)
        key = hashlib.sha256(self.address.encode()).hexdigest()[:16]
        self.folder = cache_folder() / "results" / key
        self._looked = float("-inf")

    def refresh(self, *, only_looking: bool = False) -> None:
        """Bring here what others have put there since; of runs that are worked on here, nothing."""
        if only_looking and time.monotonic() - self._looked < _FRESH:
            return
        if not (self.folder / _ADDRESS).is_file():
            write_whole(self.folder / _ADDRESS, self.address)
        listed = {
            f"{kind}/{name}": stamp
            for kind in (FINISHED, UNFINISHED, STUDIES)
            for name, stamp in self.objects.listing(kind).items()
            if name.endswith(_ENDING)
        }
        with FileLock(self.folder / ".refresh.lock"):
            index = self._index()
            self._forget(index, listed)
            whole = {_folder_of(name) for name in listed if name.startswith(FINISHED)}
            wanted = [
                name
                for name, stamp in listed.items()
                if index.get(name) != stamp
                and not (name.startswith(UNFINISHED) and _folder_of(name) in whole)
            ]
            for start in range(0, len(wanted), _AT_A_TIME):
                found = list(self.objects.get_all(wanted[start : start + _AT_A_TIME]))
                with ThreadPoolExecutor(_WRITERS) as writers:
                    taken = list(writers.map(lambda each: self._take(*each), found))
                index |= {n: listed[n] for (n, _), done in zip(found, taken, strict=True) if done}
            write_whole(self.folder / _INDEX, json.dumps(index))
        self._looked = time.monotonic()

    def bring(self, folder: str) -> None:
        """Bring one run here, with its last checkpoint, for whoever has claimed it: the store is
        asked for its objects themselves, so a listing that is late does no harm."""
        directory = self.folder / folder
        for kind in (FINISHED, UNFINISHED):
            content = self.objects.get(_bundle(kind, folder))
            if content is not None:
                self._replace(directory, kind, content)
                self._fetch_checkpoints(directory)
                return
        _not_finished(directory)

    def is_published(self, directory: Path) -> bool:
        """Return whether the run is finished at the address, as far as is known here."""
        return _recorded(directory)[0] == FINISHED

    def publish(self, directory: Path, *, in_place: bool) -> None:
        """Have a finished run count at the address. `in_place` is for whoever claimed a run that
        was finished and measured more of it; any other run is written once, and where another
        process was quicker its run is taken over."""
        before = elsewhere(directory) if self.is_published(directory) else {}
        heavy = {}
        if (directory / _WEIGHTS).is_file():
            heavy[_WEIGHTS] = self._put_heavy(directory, _WEIGHTS, before.get(_WEIGHTS))
        elif _WEIGHTS in before:
            heavy[_WEIGHTS] = before[_WEIGHTS]
        content, name = pack(small_files(directory), heavy), _bundle(FINISHED, directory.name)
        if in_place:
            self.objects.put(name, content)
        elif not self.objects.create(name, content):
            self.bring(directory.name)
            self._tidy(directory)
            return
        self._record(directory, FINISHED, content, heavy)
        for path in (directory / "checkpoints").glob("*.pt"):
            path.unlink(missing_ok=True)
        self._tidy(directory)

    def carry(self, directory: Path) -> None:
        """Put a run that goes on at the address as it is now, with its last checkpoint."""
        files = small_files(directory)  # before the checkpoint: it holds all that these say
        files.pop(MANIFEST, None)
        known, heavy = elsewhere(directory), {}
        checkpoint = newest_checkpoint(directory)
        if checkpoint is not None:
            name = checkpoint.relative_to(directory).as_posix()
            with suppress(FileNotFoundError):  # two newer ones are there by now: the next time
                heavy[name] = self._put_heavy(directory, name, known.get(name))
        if not files or (checkpoint is not None and not heavy):
            return
        content = pack(files, heavy)
        if _recorded(directory) == (UNFINISHED, _sha256(content)):
            return
        self.objects.put(_bundle(UNFINISHED, directory.name), content)
        self._record(directory, UNFINISHED, content, heavy)
        used = {each.object for each in heavy.values()}
        self.objects.remove(each.object for each in known.values() if each.object not in used)

    def fetch(self, directory: Path, name: str) -> None:
        """A large file of a run, if it is at the address and not here."""
        heavy = elsewhere(directory).get(name)
        if heavy is None or (directory / name).is_file():
            return
        with whole_file(directory / name) as path:
            if not self.objects.get_file(heavy.object, path) or digest(path) != heavy.sha256:
                raise StoreError(
                    f"{heavy.object!r} at {self.address} is not there or not what was written: "
                    f"{name} of the run {directory.name} is lost. Remove "
                    f"{_bundle(FINISHED, directory.name)!r} there and run the study again, which "
                    f"trains the run anew."
                )

    def put_study(self, name: str) -> None:
        """Put what a study is, and the plans it had, at the address."""
        directory = self.folder / STUDIES / name
        there = [each for each in _OF_A_STUDY if (directory / each).is_file()]
        content = pack({each: (directory / each).read_bytes() for each in there}, {})
        if _recorded(directory) != (STUDIES, _sha256(content)):
            self.objects.put(f"{STUDIES}/{name}{_ENDING}", content)
            self._record(directory, STUDIES, content, {})

    def put_pages(self, name: str) -> None:
        """Put the table and the page of a study there, for people; nothing reads them back."""
        for each in _FOR_PEOPLE:
            path = self.folder / STUDIES / name / each
            if path.is_file():
                self.objects.put_file(f"{STUDIES}/{name}/{each}", path)

    def _put_heavy(self, directory: Path, name: str, before: Heavy | None) -> Heavy:
        path = directory / name
        found = digest(path)
        if before is not None and before.sha256 == found:
            return before
        target = f"{HEAVY}/{directory.name}/{found[:16]}-{path.name}"
        self.objects.put_file(target, path)
        return Heavy(object=target, sha256=found, size=path.stat().st_size)

    def _tidy(self, directory: Path) -> None:
        """Remove what a finished run does not need any more."""
        used = {each.object for each in elsewhere(directory).values()}
        below = f"{HEAVY}/{directory.name}"
        there = (f"{below}/{name}" for name in self.objects.listing(below))
        self.objects.remove(name for name in there if name not in used)
        self.objects.remove([_bundle(UNFINISHED, directory.name)])

    def _take(self, name: str, content: bytes) -> bool:
        """Have a listed object here; not if a process of this machine works on it."""
        kind, folder = name.partition("/")[0], _folder_of(name)
        if kind == STUDIES:
            self._replace_study(folder, content)
            return True
        directory = self.folder / folder
        directory.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(directory / ".lock", timeout=0):
                self._replace(directory, kind, content)
        except Timeout:
            return False
        return True

    def _replace(self, directory: Path, kind: str, content: bytes) -> None:
        if _recorded(directory) == (kind, _sha256(content)):
            if kind == UNFINISHED:
                _not_finished(directory)  # what is here may be later than what is there
            return
        files = self._unpacked(_bundle(kind, directory.name), content)
        heavy = {n: Heavy(**h) for n, h in json.loads(files.pop(ELSEWHERE, b"{}")).items()}
        same = {
            name: each
            for name, each in heavy.items()
            if (directory / name).is_file() and digest(directory / name) == each.sha256
        }
        write_files(directory, files, same)
        self._record(directory, kind, content, heavy)

    def _replace_study(self, name: str, content: bytes) -> None:
        directory = self.folder / STUDIES / name
        if _recorded(directory) == (STUDIES, _sha256(content)):
            return
        files = self._unpacked(f"{STUDIES}/{name}{_ENDING}", content)
        for each in _OF_A_STUDY:
            if each in files:
                write_whole(directory / each, files[each])
        self._record(directory, STUDIES, content, {})

    def _unpacked(self, name: str, content: bytes) -> dict[str, bytes]:
        try:
            return unpack(content)
        except ValueError as error:
            raise StoreError(
                f"{name!r} at {self.address} is damaged: {error}. Remove it there; a run is then "
                f"trained again, or goes on from its last checkpoint."
            ) from error

    def _record(
        self, directory: Path, kind: str, content: bytes, heavy: Mapping[str, Heavy]
    ) -> None:
        if kind != STUDIES:
            where = {name: each.model_dump() for name, each in heavy.items()}
            write_whole(directory / ELSEWHERE, json.dumps(where))
        write_whole(directory / RECORD, f"{kind} {_sha256(content)}")

    def _fetch_checkpoints(self, directory: Path) -> None:
        if newest_checkpoint(directory) is not None:
            return
        for name in elsewhere(directory):
            if not name.startswith("checkpoints/"):
                continue
            try:
                self.fetch(directory, name)
            except StoreError as error:
                warnings.warn(f"The run starts anew. {error}", stacklevel=2)

    def _forget(self, index: dict[str, str], listed: Iterable[str]) -> None:
        """Drop what somebody removed at the address; a listing alone does not decide it."""
        for name in [name for name in index if name not in set(listed)]:
            if self.objects.size(name) is not None:
                continue
            index.pop(name)
            directory = self.folder / _folder_of(name)
            if name.startswith(FINISHED) and self.is_published(directory):
                with suppress(Timeout), FileLock(directory / ".lock", timeout=0):
                    write_files(directory, {}, {})

    def _index(self) -> dict[str, str]:
        path = self.folder / _INDEX
        found: dict[str, str] = json.loads(path.read_bytes()) if path.is_file() else {}
        return found


def newest_checkpoint(directory: Path) -> Path | None:
    """The last checkpoint of a run; their names sort as they were written."""
    found = sorted((directory / "checkpoints").glob("epoch-*.pt"))
    return found[-1] if found else None


@cache
def mirror_at(address: str) -> Mirror:
    """One per address and process."""
    return Mirror(address.rstrip("/"))


def mirror_of(out: Path) -> Mirror | None:
    """The mirror whose folder this is; None of a folder that is the results themselves."""
    path = out / _ADDRESS
    if not path.is_file():
        return None
    return mirror_at(path.read_text(encoding="utf-8"))


def results_folder(out: str | Path) -> Path:
    """The folder of this machine with the results that are asked for, which are brought here where
    they are at an address."""
    if not is_address(out):
        return local_path(out)
    mirror = mirror_at(str(out))
    mirror.refresh(only_looking=True)
    return mirror.folder


def one_result(place: str | Path) -> Path:
    """Return the folder here of one run, of one study or of all: what comes after the address of
    the results is taken as the name of a run, or as `studies/NAME`."""
    if not is_address(place):
        return local_path(place)
    whole = str(place).rstrip("/")
    above, _, last = whole.rpartition("/")
    further, _, studies = above.rpartition("/")
    candidates = [(whole, ""), (above, last), (further, f"{STUDIES}/{last}")]
    for address, below in candidates[: 3 if studies == STUDIES else 2]:
        if address.endswith(("/", ":")) or not _has_results(address):
            continue
        folder = results_folder(address) / below
        if folder.is_dir():
            return folder
    raise InputError(
        f"There are no results at {whole!r}. Expected the address that was given to `attnlab study "
        f"run --out`, or that and the name of a run, or studies/NAME."
    )


def fetch_weights(directory: Path) -> None:
    """The weights of a run, if they are at an address and not here."""
    mirror = mirror_of(directory.parent)
    if mirror is not None:
        mirror.fetch(directory, _WEIGHTS)


def _has_results(address: str) -> bool:
    objects = mirror_at(address).objects
    return any(objects.listing(kind) for kind in (FINISHED, UNFINISHED, STUDIES))


def _bundle(kind: str, folder: str) -> str:
    return f"{kind}/{folder}{_ENDING}"


def _folder_of(name: str) -> str:
    return name.rpartition("/")[2].removesuffix(_ENDING)


def _not_finished(directory: Path) -> None:
    """A run that was finished here by a process that was killed before it was put at the address
    is not finished: who claims it finishes it again, from its last checkpoint."""
    for name in (MANIFEST, RECORD):
        if name == MANIFEST or _recorded(directory)[0] == FINISHED:
            (directory / name).unlink(missing_ok=True)


def _recorded(directory: Path) -> tuple[str, str]:
    """What of the address is here, and the checksum of its object."""
    path = directory / RECORD
    kind, _, checksum = (path.read_text() if path.is_file() else " ").partition(" ")
    return kind, checksum


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
