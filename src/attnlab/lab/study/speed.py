"""The rows of a study timed, interleaved, when no run of it is being worked on."""

from __future__ import annotations

import time
from pathlib import Path

from filelock import FileLock

from attnlab.lab.study.store import Store
from attnlab.results.speed import GroupSpeed, StudySpeed, read_speed, write_speed
from attnlab.results.study import StoredStudy, StudyCell


def time_study(
    store: Store, study: StoredStudy, images: int, *, threads: int | None = None, again: bool
) -> StudySpeed:
    """Time the networks of each group interleaved, those of the first finished seed of each row,
    and write it down. What was timed of the same runs is kept, unless `again`."""
    from attnlab.lab.measures import time_interleaved  # which needs torch

    directory = store.study_directory(study.name)
    with FileLock(directory / ".speed.lock"):  # others that end the study now wait, and find it
        before = None if again else read_speed(directory)
        known = {} if before is None else before.groups
        groups, problems = {}, []
        for name in dict.fromkeys(entry.cell.group for entry in study.runs):
            runs = chosen_runs(store, study, name)
            if not runs:
                continue
            if name in known and is_of(known[name], runs):
                groups[name] = known[name]
                continue
            try:
                groups[name] = time_interleaved(runs, images, threads=threads)
            except Exception as error:  # the results are there, and the page says what is not
                problems.append(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}")
        if before is not None and groups == known and not problems:
            return before
        found = StudySpeed(groups=groups, why_not="; ".join(problems), when=time.time())
        with store.planning(study.name):
            write_speed(directory, found)
    return found


def not_timed(store: Store, study: StoredStudy, why: str) -> None:
    """Write down why there are no times, unless there are."""
    directory = store.study_directory(study.name)
    if read_speed(directory) is None:
        with store.planning(study.name):
            write_speed(directory, StudySpeed(why_not=why))


def chosen_runs(store: Store, study: StoredStudy, group: str) -> dict[str, Path]:
    """The directory of the first finished seed of each row, the plain one first."""
    cells: list[StudyCell] = list(
        dict.fromkeys(e.cell for e in study.runs if e.cell.group == group)
    )
    found = {}
    for cell in sorted(cells, key=lambda cell: not cell.plain):
        own = sorted((e for e in study.runs if e.cell == cell), key=lambda entry: entry.seed)
        entry = next((entry for entry in own if store.run(entry).is_trained), None)
        if entry is not None:
            found[cell.row] = store.out / entry.folder
    return found


def is_of(timed: GroupSpeed, runs: dict[str, Path]) -> bool:
    """Return whether these very runs were timed."""
    return {row: each.folder for row, each in timed.rows.items()} == {
        row: folder.name for row, folder in runs.items()
    }


def group_speed(store: Store, study: StoredStudy, group: str) -> tuple[GroupSpeed | None, str]:
    """Return what was timed of a group, or why it was not."""
    found = read_speed(store.study_directory(study.name))
    command = f"`{study.called.measure(study.name, 'speed')}`"
    if found is None:
        return None, f"the networks were not timed interleaved: {command} does it on this machine"
    timed = found.groups.get(group)
    if timed is None:
        why = found.why_not or "no run of it was finished then"
        return None, f"the networks were not timed interleaved ({why}): {command} does it here"
    if not is_of(timed, chosen_runs(store, study, group)):
        return None, f"other runs were timed than are finished now: {command} times these"
    return timed, ""
