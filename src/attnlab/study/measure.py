"""`measure_study`: measure the finished runs of a study again, without training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from attnlab._errors import InputError
from attnlab.measure import MeasureConfig, measure_run
from attnlab.stored import Measured
from attnlab.stored.study import RunEntry, read_study
from attnlab.study.plan import refresh, require_study, upgrade
from attnlab.study.store import Store


def measure_study(
    name: str,
    out: str | Path = "runs",
    only: Sequence[str] | None = None,
    images: int | None = None,
    report: Callable[[RunEntry, list[Measured]], None] | None = None,
) -> int:
    """Measure every finished run of the stored study `name`: what is missing, or what `only` names,
    again; on `images` test images, or as many as the study says. Returns how many measurements were
    made; the study's table is written anew."""
    store = Store(Path(out).resolve())
    directory = require_study(store, name)
    upgrade(store, name)
    study = read_study(directory)
    if study.damage:
        raise InputError(study.damage)
    settings = MeasureConfig(**study.definition.get("measure", {}))
    if images is not None:
        settings = MeasureConfig(**{**settings.model_dump(), "images": images})
    number = 0
    for entry in study.runs:
        if not store.run(entry).is_trained:
            continue
        found = measure_run(store.out / entry.folder, settings, only)
        number += len(found)
        if report is not None:
            report(entry, found)
    refresh(store, name)
    return number
