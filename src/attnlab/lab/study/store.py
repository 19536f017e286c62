"""What is on disk: one directory per run, shared by all studies, and one per study.

OUT/<run id>/           config.json, identity.json, data.json, environment.json, metrics.jsonl,
                        checkpoints, model.safetensors, result.json; measured/*.json; digest.json:
                        what tables take of these; while and after it is worked on owner.json,
                        log.txt; failure.json if the last attempt failed
OUT/studies/<name>/     study.json: the study and its runs; plans.jsonl: every plan it had;
                        table.json: what the runs say

OUT is a folder, or the one that mirrors an address (`attnlab.results.mirror`).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from filelock import FileLock

from attnlab._files import write_whole
from attnlab.lab.study.lease import alone
from attnlab.lab.study.lock import is_claimed
from attnlab.results import DamagedFileError, StoredRun
from attnlab.results.mirror import Mirror, mirror_of, results_folder
from attnlab.results.run_files import RunFailure
from attnlab.results.study import RunEntry

if TYPE_CHECKING:
    from attnlab.lab.study.grid import PlannedRun

State = Literal["done", "running", "failed", "stopped", "waiting", "damaged"]


@dataclass(frozen=True)
class Store:
    """The folder that holds the runs. What it has read of a run that is finished and whole it
    keeps; where such runs are measured again, another store sees it."""

    out: Path
    _kept: dict[tuple[str, str], StoredRun] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @classmethod
    def at(cls, out: str | Path) -> Store:
        """The runs in a folder or at an address, as they are now."""
        return cls(results_folder(out).resolve())

    @property
    def mirror(self) -> Mirror | None:
        """The mirror of the address that the runs are at; None if they are in a folder of their
        own."""
        return mirror_of(self.out)

    @property
    def shown(self) -> str:
        """How a command names the place: below this folder without what is above, so that a page
        tells nobody how its author's folders are called."""
        if self.mirror is not None:
            return self.mirror.address
        whole, here = self.out.resolve(), Path.cwd()
        return str(whole.relative_to(here) if whole.is_relative_to(here) else whole)

    def look_again(self) -> None:
        """Bring here what others have finished since."""
        if self.mirror is not None:
            self.mirror.refresh()

    @contextmanager
    def planning(self, name: str) -> Iterator[Path]:
        """The directory of a study, for as long as nobody else changes what is written of it;
        several may start one study at a time."""
        directory, mirror = self.study_directory(name), self.mirror
        directory.mkdir(parents=True, exist_ok=True)
        with FileLock(directory / ".plans.lock"):
            if mirror is None:
                yield directory
                return
            with alone(mirror, f"study-{name}"):
                mirror.refresh()
                yield directory
                mirror.put_study(name)

    def study_directory(self, name: str) -> Path:
        return self.out / "studies" / name

    def run(self, entry: RunEntry) -> StoredRun:
        """Return what is there of a run."""
        key = entry.folder, entry.run_id
        if key in self._kept:
            return self._kept[key]
        found = entry.stored_in(self.out)
        if found.is_digested:
            self._kept[key] = found
        return found

    def state(self, entry: RunEntry) -> State:
        """`stopped` runs have begun and resume; `waiting` ones have not. Of a `damaged` run some
        file cannot be read, be it finished or not."""
        directory = self.out / entry.folder
        stored = self.run(entry)
        if stored.is_trained and not stored.damage and self._counts(directory):
            return "done"
        if is_claimed(directory):
            return "running"
        if stored.damage:
            return "damaged"
        if (directory / "failure.json").exists():
            return "failed"
        return "stopped" if (directory / "config.json").exists() else "waiting"

    def _counts(self, directory: Path) -> bool:
        """Whether others see that the run is finished too."""
        return self.mirror is None or self.mirror.is_published(directory)

    def entries(self, runs: Sequence[PlannedRun]) -> list[RunEntry]:
        """Say where the runs of a plan are, or will be."""
        return [self._entry(run) for run in runs]

    def _entry(self, run: PlannedRun) -> RunEntry:
        folder = run.run_id
        directory = self.out / folder
        if (directory / "result.json").is_file() and _has_changed(directory, run):
            folder = f"{run.run_id}-{_resolved(run)}"  # a default has changed since
        return RunEntry(
            run.run_id,
            folder,
            run.seed,
            run.cell,
            run.config.attention,
            run.identity.model_dump(mode="json"),
        )


def _has_changed(directory: Path, run: PlannedRun) -> bool:
    # Here, because whoever only reads runs does without torch: 1.5 s and 600 MB.
    from attnlab.lab.training.identity import changed_defaults

    try:
        # To compare setting by setting takes a millisecond, and most often all are the same.
        if (directory / "config.json").read_bytes() == f"{run.config.to_json()}\n".encode():
            return False
        return bool(changed_defaults(directory, run.config))
    except (OSError, DamagedFileError):  # its state tells
        return False


def _resolved(run: PlannedRun) -> str:
    return hashlib.sha256(run.config.to_json().encode()).hexdigest()[:4]


def is_finished(directory: Path) -> bool:
    """Return whether there is a result, be it damaged or not."""
    return StoredRun(directory).has_result


def write_failure(directory: Path, error: str, details: str = "") -> None:
    failure = RunFailure(error=error, when=time.time(), details=details)
    write_whole(directory / "failure.json", failure.model_dump_json(indent=1))
