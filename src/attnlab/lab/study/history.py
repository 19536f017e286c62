"""What happened to a study's plan after results had been seen, and which old runs do not count.

Adding seeds after a look is allowed and recorded: from then on verdicts are by the anytime
intervals. Rows that were dropped stay in the family that Holm corrects for. Where seeds were
dropped that had been seen, nothing can be told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from attnlab.lab.study.store import Store, is_finished
from attnlab.lab.training.identity import Identity
from attnlab.results.damage import DamagedFileError, read_object
from attnlab.results.identity import FILE, run_id_of
from attnlab.results.study import PlanRecord, Plans, RunEntry, read_plans, read_study


@dataclass(frozen=True)
class History:
    """The plans of a study, up to the present runs."""

    sequential: bool
    """Whether seeds were added after a look."""
    changes: tuple[str, ...]
    """In words, for the table and the page."""
    dropped: tuple[RunEntry, ...]
    """Finished runs of rows that are not planned any more."""
    dropped_seeds: tuple[int, ...]
    """Seeds with finished runs that are not planned any more, though their rows are."""
    damage: str
    """Why it is not known what was planned before; empty where it is known."""
    stale: tuple[RunEntry, ...]
    """Finished runs of earlier plans in whose place another run is planned now."""


def study_history(store: Store, name: str, entries: Sequence[RunEntry]) -> History:
    """Of the study `name`, whose present runs are `entries`."""
    found = stored_plans(store, name)
    plans = found.plans
    before = _finished(store, (entry for plan in plans for entry in plan.runs))
    now = {(entry.cell, entry.seed): entry for entry in entries}
    cells, seeds = {entry.cell for entry in entries}, {entry.seed for entry in entries}
    dropped = [entry for entry in before if entry.cell not in cells]
    lost = [entry for entry in before if entry.cell in cells and entry.seed not in seeds]
    stale = [
        entry
        for entry in before
        if (entry.cell, entry.seed) in now and now[entry.cell, entry.seed].folder != entry.folder
    ]
    extended = [(b, extra) for a, b in pairwise(plans) if (extra := _added(a, b)) and b.seen]
    return History(
        sequential=bool(extended) or any(plan.until_decided for plan in plans),
        changes=(
            *(_extension(plan, extra) for plan, extra in extended),
            *_removals(dropped, lost),
            *(f"stale runs, which do not count, {text}" for text in stale_reasons(stale, entries)),
        ),
        dropped=tuple(dropped),
        dropped_seeds=tuple(sorted({entry.seed for entry in lost})),
        damage=found.damage,
        stale=tuple(stale),
    )


def stored_plans(store: Store, name: str) -> Plans:
    """Every plan that was written. Without any, a study.json that cannot be read is damage: it is
    not known what was planned before."""
    directory = store.study_directory(name)
    found = read_plans(directory)
    if not found.plans and not found.damage and (directory / "study.json").is_file():
        try:
            read_study(directory)
        except DamagedFileError as error:
            return Plans((), str(error))
    return found


def seen_runs(store: Store, name: str) -> tuple[str, ...]:
    """The ids of the study's runs that are finished, of whichever plan."""
    plans = stored_plans(store, name).plans
    known = (entry for plan in plans for entry in plan.runs)
    return tuple(entry.run_id for entry in _finished(store, known))


def stale_reasons(stale: Iterable[RunEntry], now: Sequence[RunEntry]) -> list[str]:
    """`3: the gate's source changed (my_gates.MyGate)`, one text per reason."""
    places = {(entry.cell, entry.seed): entry for entry in now}
    count = Counter(_reason(entry, places[entry.cell, entry.seed]) for entry in stale)
    return [f"{number}: {reason}" for reason, number in count.items()]


def _reason(old: RunEntry, new: RunEntry) -> str:
    changed = Identity(**old.identity).differences(Identity(**new.identity))
    return "; ".join(changed) or "a default of attnlab changed"


def _finished(store: Store, entries: Iterable[RunEntry]) -> list[RunEntry]:
    each = {entry.folder: entry for entry in entries}
    return [entry for entry in each.values() if store.run(entry).is_trained]


def _added(before: PlanRecord, after: PlanRecord) -> list[int]:
    return [seed for seed in after.seeds if seed not in before.seeds]


def _extension(plan: PlanRecord, added: Sequence[int]) -> str:
    day = datetime.fromtimestamp(plan.time, UTC).date().isoformat()
    seeds = "seed" if len(added) == 1 else "seeds"
    was = "was" if len(added) == 1 else "were"
    return (
        f"{seeds} {_numbers(added)} {was} added on {day}, after {len(plan.seen)} "
        f"run{'s' * (len(plan.seen) > 1)} had been seen: verdicts are by anytime-valid intervals"
    )


def _removals(dropped: Sequence[RunEntry], lost: Sequence[RunEntry]) -> Iterator[str]:
    rows: Counter[tuple[str, str]] = Counter((e.cell.group, e.cell.row) for e in dropped)
    for (group, row), number in rows.items():
        yield (
            f"row {row} of {group} was removed with {number} finished run{'s' * (number > 1)}; it "
            f"still counts in Holm's correction"
        )
    seeds = sorted({entry.seed for entry in lost})
    if seeds:
        yield (
            f"seed{'s' * (len(seeds) > 1)} {_numbers(seeds)} had been seen and "
            f"{'were' if len(seeds) > 1 else 'was'} removed: no verdict"
        )


def _numbers(seeds: Sequence[int]) -> str:
    """`3`, `3 to 6`, or `3, 5, 9`."""
    seeds = sorted(seeds)
    if len(seeds) > 2 and seeds[-1] - seeds[0] == len(seeds) - 1:
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))


def runs_with_other_threads(store: Store, entries: Sequence[RunEntry]) -> Counter[int]:
    """How many runs of a plan that are not finished are there with other threads, by how many
    threads these have."""
    wanted = {
        _without_threads(entry.identity): entry.identity.get("threads")
        for entry in entries
        if not is_finished(store.out / entry.folder)
    }
    found: Counter[int] = Counter()
    for file in store.out.glob(f"*/{FILE}") if wanted else ():
        try:
            identity = read_object(file, "")
        except DamagedFileError:  # the state of the run tells it
            continue
        threads, key = identity.get("threads"), _without_threads(identity)
        if key in wanted and threads != wanted[key] and is_finished(file.parent):
            found[int(str(threads))] += 1
    return found


def _without_threads(identity: dict[str, Any]) -> str:
    return run_id_of({name: value for name, value in identity.items() if name != "threads"})
