"""A stored study and what its runs say now. It is not planned again, so neither its networks nor
its data are needed, and torch is not imported."""

from __future__ import annotations

from pathlib import Path

from attnlab._errors import InputError
from attnlab._files import unless_read_only
from attnlab.lab.study.store import Store
from attnlab.lab.study.table import study_table
from attnlab.results.study import StoredStudy, read_study, write_table
from attnlab.results.table import StudyTable


def refresh(store: Store, name: str) -> StudyTable:
    """The table of a stored study, as `up_to_date` makes it."""
    return up_to_date(store, name)[1]


def up_to_date(store: Store, name: str) -> tuple[StoredStudy, StudyTable]:
    """A stored study and its table, made anew of what is on disk; and written beside it, where
    that may be written. The study is not planned again."""
    directory = store.study_directory(name)
    study = read_study(directory)
    table = study_table(store, study)
    with unless_read_only(directory):
        write_table(directory, table)
    return study, table


def require_study(store: Store, name: str) -> Path:
    """The directory of a study that was run."""
    directory = store.study_directory(name)
    if not (directory / "study.json").is_file():
        what = directory / "study.json" if store.mirror is None else f"study {name!r}"
        raise InputError(
            f"There is no {what}. Expected the name of a study that was run "
            f"with --out {store.shown}."
        )
    return directory
