"""All measurements of a finished run, those that are missing or all again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from attnlab._errors import DoesNotApplyError, unknown_name
from attnlab.instruments.classes.measurement import ClassesMeasurement
from attnlab.instruments.config import MeasureConfig
from attnlab.instruments.corruptions.measurement import CorruptionsMeasurement
from attnlab.instruments.details.measurement import DetailsMeasurement
from attnlab.instruments.measurement import Measurement
from attnlab.instruments.pictures.measurement import PicturesMeasurement
from attnlab.instruments.stiffness.measurement import StiffnessMeasurement
from attnlab.instruments.stripe.measurement import StripeMeasurement
from attnlab.lab.measures.fold import FoldMeasurement
from attnlab.lab.training.surroundings import deterministically
from attnlab.results import Measured, StoredRun
from attnlab.subject import Subject, open_run

MEASUREMENTS: dict[str, Measurement] = {
    each.name: each
    for each in (
        StiffnessMeasurement(),
        StripeMeasurement(),
        FoldMeasurement(),
        ClassesMeasurement(),
        DetailsMeasurement(),
        PicturesMeasurement(),
        CorruptionsMeasurement(),
    )
}
"""By name."""


def missing(directory: str | Path, config: MeasureConfig | None = None) -> list[str]:
    """The names of what `config` asks for and the run does not have, or has on fewer images."""
    stored, config = StoredRun(Path(directory)), config or MeasureConfig()
    found = []
    for name, measurement in MEASUREMENTS.items():
        wanted, there = measurement.settings(config), stored.measured(name)
        if wanted is None or not measurement.applies(stored.directory):
            continue
        if (
            there is None
            or not stored.is_whole(name)
            or any(there.settings.get(k, 0) < v for k, v in wanted.items())
        ):
            found.append(name)
    return found


def measure_run(
    directory: str | Path,
    config: MeasureConfig | None = None,
    only: Sequence[str] | None = None,
    *,
    threads: int | None = None,
) -> dict[str, Measured]:
    """Measure the network of a finished run, without training: what is missing, or what `only`
    names, again. Returns what was measured now, by its name; it is stored in the run's
    directory."""
    folder, config = Path(directory), config or MeasureConfig()
    for name in only or ():
        if name not in MEASUREMENTS:
            raise unknown_name("measurement", name, MEASUREMENTS)
    wanted = missing(folder, config) if only is None else list(only)
    asked = [name for name in wanted if MEASUREMENTS[name].settings(config) is not None]
    if not asked:
        return {}
    subject, done = open_run(folder, trust=True), {}
    with deterministically(threads):
        for name in asked:
            done[name] = _measured(MEASUREMENTS[name], subject, config, folder)
            StoredRun(folder).write_measured(done[name])
    return done


def _measured(
    measurement: Measurement, subject: Subject, config: MeasureConfig, folder: Path
) -> Measured:
    began = perf_counter()
    found: dict[str, Any] | None = None
    try:
        result = measurement.measure(subject, config, folder)
        notes = result.notes
        # Where the network comes from is known by the run's directory, which may move.
        found = json.loads(replace(result, provenance=None).to_json())
    except DoesNotApplyError as error:
        notes = (str(error),) if str(error) else ()
    return Measured(
        measurement=measurement.name,
        settings=measurement.settings(config) or {},
        found=found,
        notes=notes,
        seconds=perf_counter() - began,
    )
