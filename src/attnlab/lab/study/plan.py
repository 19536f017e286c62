"""A study's plan, written down: what belongs to it, and what had been seen when it was made."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from attnlab._files import LONG_AGO, remove_partial
from attnlab.lab.study.definition import Study
from attnlab.lab.study.grid import PlannedRun, planned_runs
from attnlab.lab.study.history import seen_runs
from attnlab.lab.study.store import Store
from attnlab.lab.training.recipe import list_recipes, load_parts
from attnlab.results.study import (
    PlanRecord,
    RunEntry,
    StoredStudy,
    add_plan,
    read_plans,
    write_study,
)
from attnlab.tasks import task_class


def bibliography(gates: Iterable[str], *, stiffness: bool) -> str:
    """Entries for gate names such as `se`, `asr:se*2`, `asr:se+se`; `stiffness` if TNS is shown.

    The entries are those of the registry; a gate of the user's own has none there.
    """
    from attnlab.gates import REFERENCES

    wanted = ["step"] if stiffness else []
    for gate in gates:
        base, _, inner = gate.partition(":")
        names = [base, *inner.split("+")] if inner else base.split("+")
        wanted += [name.split("*")[0] for name in names]
    entries = (REFERENCES[name].bibtex() for name in wanted if name in REFERENCES)
    return "\n".join(dict.fromkeys(entries))


def stored_study(
    study: Study, runs: Sequence[PlannedRun], entries: Sequence[RunEntry], out: str
) -> StoredStudy:
    """Return all that tables and pages need to know of a study whose runs are in `out`."""
    return StoredStudy(
        name=study.name,
        title=study.title,
        definition=study.model_dump(mode="json", exclude_defaults=True),
        recipe=str(study.recipe.get("name") or "of its own"),
        deviations=tuple(_deviations(runs)),
        bibliography=bibliography(
            dict.fromkeys(entry.attention for entry in entries), stiffness=study.measure.images > 0
        ),
        runs=tuple(entries),
        seeds=study.seeds,
        has_plain=study.has_plain,
        metrics=task_class(study.task).metrics,
        invocation=replace(study.invocation, out=out),
    )


def present(store: Store, study: Study) -> StoredStudy:
    """The study as it would be planned now; nothing is written."""
    runs = planned_runs(study)
    return stored_study(study, runs, store.entries(runs), store.shown)


def write_plan(store: Store, study: Study, *, until_decided: bool = False) -> StoredStudy:
    """Plan the study, and record it if it is another plan than the last one."""
    planned = present(store, study)
    with store.planning(study.name) as directory:
        remove_partial(directory, LONG_AGO)
        before = read_plans(directory)
        last = before.plans[-1] if before.plans else None
        now = (planned.runs, until_decided, planned.claim)
        if last is None or (last.runs, last.until_decided, last.claim) != now:
            plan = PlanRecord(
                time=time.time(),
                seeds=study.seeds,
                runs=planned.runs,
                seen=seen_runs(store, study.name),
                until_decided=until_decided,
                lost=before.damage,
                claim=planned.claim,
            )
            add_plan(directory, plan)
        write_study(directory, replace(planned, plans_end=read_plans(directory).end))
    return planned


def extended(store: Store, study: Study) -> Study:
    """`study` as it was run last: with its threads, and with the seeds that were added to it."""
    study = extended_seeds(store, study)
    threads = planned_threads(store, study.name) if study.threads is None else None
    return study if threads is None else study.with_threads(threads)


def planned_threads(store: Store, name: str) -> int | None:
    """The threads per process of the last plan of a study; None if there was none."""
    plans = read_plans(store.study_directory(name)).plans
    found = plans[-1].runs[0].identity.get("threads") if plans else None
    return found if isinstance(found, int) else None


def extended_seeds(store: Store, study: Study) -> Study:
    """`study` with the seeds that `--until-decided` added to just this study, if it did."""
    plans = read_plans(store.study_directory(study.name)).plans
    if not plans or not plans[-1].until_decided:
        return study
    last = plans[-1].seeds
    return study.with_seeds(last) if last[: len(study.seeds)] == study.seeds else study


def _deviations(runs: Sequence[PlannedRun]) -> list[tuple[str, object, object]]:
    """(setting, as the named recipe has it, as the study has it)."""
    found: dict[tuple[str, str], tuple[str, object, object]] = {}
    for run in {run.cell: run for run in runs}.values():  # seeds do not differ in these
        config = run.config
        if config.recipe.name not in list_recipes():
            continue
        parts = load_parts(str(config.recipe.name))
        settings = {
            **config.recipe.model_dump(mode="json"),
            **config.data.augmentation.model_dump(mode="json"),
            **config.task.options,
        }
        named = {
            **parts.recipe.model_dump(mode="json"),
            **parts.augmentation,
            **dict.fromkeys(config.task.options, "left out"),
            **parts.task_options,
        }
        for setting, value in settings.items():
            if setting in named and value != named[setting]:
                found[setting, repr(value)] = (setting, named[setting], value)
    return list(found.values())
