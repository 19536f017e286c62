"""What happened to a study's plan after results had been seen, and which old runs do not count.

Adding seeds or rows after a look is allowed and recorded: from then on verdicts on them are by the
anytime intervals, and rows that were added share an error rate of their own. Rows that were dropped
stay in the family that Holm corrects for. Where seeds were dropped that had been seen, nothing can
be told.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from attnlab.lab.study.looking import Looks, compared_elsewhere, looks_at, row_key, share_of
from attnlab.lab.study.store import Store, is_finished
from attnlab.results.damage import DamagedFileError, read_object
from attnlab.results.identity import FILE, Identity, run_id_of
from attnlab.results.study import PlanRecord, RunEntry, read_plans


@dataclass(frozen=True)
class History:
    """The plans of a study, up to the present runs."""

    sequential: bool
    """Whether seeds were added after a look."""
    changes: tuple[str, ...]
    """In words, for the table and the page."""
    dropped_seeds: tuple[int, ...]
    """Seeds with finished runs that are not planned any more, though their rows are."""
    damage: str
    """Why it is not known what was planned before; empty where it is known."""
    stale: tuple[RunEntry, ...]
    """Finished runs of earlier plans in whose place another run is planned now."""
    looks: dict[str, Looks] = field(default_factory=dict)
    """By the name of the group."""
    elsewhere: dict[str, tuple[RunEntry, ...]] = field(default_factory=dict)
    """Runs of other studies that were compared with the same baseline, by the group's name."""
    late_claim: str = ""
    """Why the margin of equivalence was not stated beforehand; empty if it was."""


def study_history(store: Store, name: str, entries: Sequence[RunEntry], claim: str = "") -> History:
    """Tell how the study `name` came to its present runs, `entries`, and how often it was looked
    at; `claim` is what it says of equivalence."""
    directory = store.study_directory(name)
    found = read_plans(directory)
    plans = _with_present(found.plans, entries, claim)
    others = _plans_of_others(store, name)
    every = (entry for own in (plans, *others.values()) for plan in own for entry in plan.runs)
    finished = _finishing_times(store, every)
    dropped, lost, stale = _left_out(plans, entries, finished)
    looks, elsewhere, listed = {}, {}, []
    for group in dict.fromkeys(entry.cell.group for entry in entries):
        own = [entry for entry in entries if entry.cell.group == group]
        baseline = _baseline(own)
        looks[group] = looks_at(baseline, plans, finished)
        there = list(compared_elsewhere(baseline, own, others, finished))
        elsewhere[group] = tuple({e.folder: e for _, runs in there for e in runs}.values())
        listed += [_listed(group, study, runs, own) for study, runs in there]
        lost += _seen_elsewhere(looks[group], entries, others, finished)
    extended = {id(plan): (plan, seeds) for each in looks.values() for plan, seeds in each.extended}
    return History(
        sequential=bool(extended) or any(plan.until_decided for plan in plans),
        changes=(
            *(_extension(plan, seeds) for plan, seeds in extended.values()),
            *(text for group, each in looks.items() for text in _looked(group, each)),
            *_removals(dropped, lost),
            *(f"stale runs, which do not count, {text}" for text in stale_reasons(stale, entries)),
            *(text for text in listed if text),
        ),
        dropped_seeds=tuple(sorted({entry.seed for entry in lost})),
        damage=found.damage,
        stale=tuple(stale),
        looks=looks,
        elsewhere=elsewhere,
        late_claim=_late_claim(plans, entries, finished, claim) if claim else "",
    )


def _with_present(
    plans: Sequence[PlanRecord], entries: Sequence[RunEntry], claim: str
) -> tuple[PlanRecord, ...]:
    """The plans, and what is asked for now if that was not planned yet."""
    now = tuple(entries)
    if plans and plans[-1].runs == now and plans[-1].claim in (None, claim):
        return tuple(plans)
    seeds = tuple(dict.fromkeys(entry.seed for entry in now))
    return (*plans, PlanRecord(time.time(), seeds, now, (), claim=claim))


def _late_claim(
    plans: Sequence[PlanRecord],
    entries: Sequence[RunEntry],
    finished: Mapping[str, float],
    claim: str,
) -> str:
    """Why a claim of equivalence was not stated beforehand: runs that it is about were finished
    before the first of the plans that have it up to now."""
    since = plans[-1]
    for plan in reversed(plans):
        if plan.claim not in (None, claim):
            break
        since = plan
    # A baseline alone is not a look: a difference needs two runs of one seed.
    places = Counter(
        (entry.cell.group, entry.seed)
        for entry in entries
        if finished.get(entry.folder, since.time) < since.time
    )
    seen = sum(number for number in places.values() if number > 1)
    if not seen:
        return ""
    return (
        f"the margin of equivalence and the row it is about were stated on {_day(since)}, after "
        f"{seen} run{'s' * (seen > 1)} had been seen"
    )


def _plans_of_others(store: Store, name: str) -> dict[str, tuple[PlanRecord, ...]]:
    """The plans of the other studies in the same folder, as far as they can be read."""
    folders = sorted(file.parent for file in store.out.glob("studies/*/plans.jsonl"))
    return {each.name: read_plans(each).plans for each in folders if each.name != name}


def _finishing_times(store: Store, entries: Iterable[RunEntry]) -> dict[str, float]:
    """When runs were finished, by their folder; those that are not are left out."""
    each = {entry.folder: entry for entry in entries}
    times = {folder: store.run(entry).finished_at for folder, entry in each.items()}
    return {folder: when for folder, when in times.items() if when is not None}


def _baseline(own: Sequence[RunEntry]) -> dict[int, str]:
    """The folders of the runs that the others of a group are compared with: the plain ones, or
    those of the first row."""
    first = next((entry.cell for entry in own if entry.cell.plain), own[0].cell)
    return {entry.seed: entry.folder for entry in own if entry.cell == first}


def _left_out(
    plans: Sequence[PlanRecord], entries: Sequence[RunEntry], finished: dict[str, float]
) -> tuple[list[RunEntry], list[RunEntry], list[RunEntry]]:
    """Finished runs that are not planned any more: of rows that are gone, of seeds that are gone,
    and those in whose place another run is planned."""
    folders, rows = {entry.folder for entry in entries}, {row_key(entry) for entry in entries}
    places = {(entry.cell, entry.seed) for entry in entries}
    known = {entry.folder: entry for plan in plans for entry in plan.runs}
    left = [e for e in known.values() if e.folder in finished and e.folder not in folders]
    stale = [entry for entry in left if (entry.cell, entry.seed) in places]
    lost = [entry for entry in left if entry not in stale and row_key(entry) in rows]
    return [entry for entry in left if entry not in stale and entry not in lost], lost, stale


def _seen_elsewhere(
    looks: Looks,
    entries: Sequence[RunEntry],
    others: Mapping[str, Sequence[PlanRecord]],
    finished: Mapping[str, float],
) -> list[RunEntry]:
    """Finished runs of seeds that this study leaves out, of rows whose other seeds had been seen
    before it was planned."""
    here = {entry.folder for entry in entries}
    known = {e.folder: e for plans in others.values() for plan in plans for e in plan.runs}
    return [
        entry
        for folder, entry in known.items()
        if folder in finished and folder not in here and row_key(entry) in looks.unknown
    ]


def _listed(group: str, study: str, runs: Sequence[RunEntry], own: Sequence[RunEntry]) -> str:
    """Say which rows another study compared with the same baseline; empty if this study has
    them."""
    here = {row_key(entry) for entry in own}
    rows = list(dict.fromkeys(e.cell.row for e in runs if row_key(e) not in here))
    if not rows:
        return ""
    return (
        f"{_rows(rows)} of the study {study} {'was' if len(rows) == 1 else 'were'} compared with "
        f"the same baseline of {group} as well"
    )


def _rows(names: Sequence[str]) -> str:
    return f"row{'s' * (len(names) > 1)} {', '.join(names)}"


def _looked(group: str, looks: Looks) -> Iterator[str]:
    """What was seen of a group before it was planned."""
    for number, (plan, entries) in enumerate(looks.added, 1):
        names = [entry.cell.row for entry in entries]
        yield (
            f"{_rows(names)} of {group} {'was' if len(names) == 1 else 'were'} added on "
            f"{_day(plan)}, after others had been seen: verdicts on "
            f"{'it' if len(names) == 1 else 'them'} are by anytime-valid intervals, at "
            f"1/{round(1 / share_of(number))} of the error rate"
        )
    if looks.unknown:
        yield (
            f"{len(looks.unknown)} row{'s' * (len(looks.unknown) > 1)} of {group} had been seen "
            f"before the first plan of this study: there are only verdicts that hold however often "
            f"somebody had looked"
        )


def seen_runs(store: Store, name: str) -> tuple[str, ...]:
    """The ids of the study's runs that are finished, of whichever plan."""
    plans = read_plans(store.study_directory(name)).plans
    each = {entry.folder: entry for plan in plans for entry in plan.runs}
    return tuple(entry.run_id for entry in each.values() if store.run(entry).is_trained)


def stale_reasons(stale: Iterable[RunEntry], now: Sequence[RunEntry]) -> list[str]:
    """`3: the gate's source changed (my_gates.MyGate)`, one text per reason."""
    places = {(entry.cell, entry.seed): entry for entry in now}
    count = Counter(_reason(entry, places[entry.cell, entry.seed]) for entry in stale)
    return [f"{number}: {reason}" for reason, number in count.items()]


def _reason(old: RunEntry, new: RunEntry) -> str:
    before, now = (Identity.model_validate(entry.identity) for entry in (old, new))
    changed = before.differences(now)
    return "; ".join(changed) or "a default of attnlab changed"


def _extension(plan: PlanRecord, added: Sequence[int]) -> str:
    seeds = "seed" if len(added) == 1 else "seeds"
    was = "was" if len(added) == 1 else "were"
    number = len(plan.seen)
    seen = f"{number} run{'s' * (number > 1)}" if number else "others"
    return (
        f"{seeds} {_numbers(added)} {was} added on {_day(plan)}, after {seen} had been seen: "
        f"verdicts are by anytime-valid intervals"
    )


def _day(plan: PlanRecord) -> str:
    return datetime.fromtimestamp(plan.time, UTC).date().isoformat()


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
    """Return how many runs of a plan that are not finished are there with other threads, by how
    many threads these have."""
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


def _without_threads(identity: dict[str, object]) -> str:
    return run_id_of({name: value for name, value in identity.items() if name != "threads"})
