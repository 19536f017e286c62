"""All measurements of a finished run, those that are missing or all again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from attnlab._errors import unknown_name
from attnlab.instruments.config import MeasureConfig
from attnlab.instruments.corruptions.measurement import Corruptions
from attnlab.instruments.measurement import Measurement
from attnlab.instruments.pictures.measurement import Pictures
from attnlab.instruments.stiffness.measurement import Stiffness
from attnlab.instruments.stripe.measurement import Stripes
from attnlab.lab.measures.classes import Classes
from attnlab.lab.measures.details import DetailsOfTask
from attnlab.lab.measures.fold import Fold
from attnlab.lab.training.surroundings import deterministically
from attnlab.results import Measured, StoredRun
from attnlab.subject import open_run

MEASUREMENTS: dict[str, Measurement] = {
    each.name: each
    for each in (
        Stiffness(),
        Stripes(),
        Fold(),
        Classes(),
        DetailsOfTask(),
        Pictures(),
        Corruptions(),
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
) -> list[Measured]:
    """Measure the network of a finished run, without training: what is missing, or what `only`
    names, again. Returns what was measured now; it is stored in the run's directory."""
    folder, config = Path(directory), config or MeasureConfig()
    for name in only or ():
        if name not in MEASUREMENTS:
            raise unknown_name("measurement", name, MEASUREMENTS)
    wanted = missing(folder, config) if only is None else list(only)
    asked = {name: MEASUREMENTS[name].settings(config) for name in wanted}
    if not any(settings is not None for settings in asked.values()):
        return []
    subject, done = open_run(folder, trust=True), []
    with deterministically(threads):
        for name, settings in asked.items():
            if settings is None:
                continue
            began = perf_counter()
            finding = MEASUREMENTS[name].measure(subject, config, folder)
            found = Measured(
                measurement=name,
                settings=settings,
                found=finding.found,
                notes=finding.notes,
                seconds=perf_counter() - began,
            )
            StoredRun(folder).write_measured(found)
            done.append(found)
    return done
