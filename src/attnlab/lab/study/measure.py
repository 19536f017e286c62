"""`measure_study`: measure the finished runs of a study again, without training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from attnlab._errors import InputError, unknown_name
from attnlab.instruments.measurement import MeasureConfig
from attnlab.lab.measures import MEASUREMENTS, measure_run
from attnlab.lab.study.current import refresh, require_study
from attnlab.lab.study.lock import claim, owner
from attnlab.lab.study.speed import time_study
from attnlab.lab.study.store import Store
from attnlab.results import Measured
from attnlab.results.study import RunEntry, read_study

SPEED = "speed"
"""Measured of all rows of a study together."""


def measure_study(
    name: str,
    out: str | Path = "runs",
    only: Sequence[str] | None = None,
    images: int | None = None,
    report: Callable[[RunEntry, dict[str, Measured]], None] | None = None,
) -> int:
    """Measure every finished run of the stored study `name`: what is missing, or what `only` names,
    again; on `images` test images, or as many as the study says. Returns how many measurements were
    made; the study's table is written anew. `only=["speed"]` times them here, interleaved."""
    store = Store.at(out)
    directory = require_study(store, name)
    study = read_study(directory)
    if study.damage:
        raise InputError(study.damage)
    settings = MeasureConfig.model_validate(study.definition.get("measure", {}))
    if images is not None:
        settings = MeasureConfig(**{**settings.model_dump(), "images": images})
    for each in only or ():
        if each not in (*MEASUREMENTS, SPEED):
            raise unknown_name("measurement", each, (*MEASUREMENTS, SPEED))
    number, of_runs = 0, None if only is None else [each for each in only if each != SPEED]
    for entry in study.runs:
        if not store.run(entry).is_trained or of_runs == []:
            continue
        found = _measured(store, entry, settings, of_runs)
        number += len(found)
        if report is not None:
            report(entry, found)
    if settings.inference_images and (only is None or SPEED in only):
        timed = time_study(store, study, settings.inference_images, again=only is not None)
        number += len(timed.groups)
    refresh(Store(store.out), name)  # which reads anew what was measured
    return number


def _measured(
    store: Store, entry: RunEntry, settings: MeasureConfig, only: Sequence[str] | None
) -> dict[str, Measured]:
    """Measure a run where it is; at an address nobody else may do so meanwhile."""
    directory = store.out / entry.folder
    if store.mirror is None:
        return measure_run(directory, settings, only)
    with claim(directory) as claimed:
        if claimed is None:
            raise InputError(
                f"{entry} is worked on by {owner(directory)}: measure it when that has ended."
            )
        found = measure_run(directory, settings, only)
        claimed.publish()
    return found
