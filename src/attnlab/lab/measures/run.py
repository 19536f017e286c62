"""All measurements of a finished run, those that are missing or all again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from attnlab._errors import DoesNotApplyError, FoldError, unknown_name
from attnlab.instruments.classes.measure import ClassesMeasurement
from attnlab.instruments.corruptions.measure import CorruptionsMeasurement
from attnlab.instruments.details.measure import DetailsMeasurement
from attnlab.instruments.measurement import MeasureConfig, Measurement
from attnlab.instruments.pictures.measure import PicturesMeasurement
from attnlab.instruments.stiffness.measurement import StiffnessMeasurement
from attnlab.instruments.stripe.measure import StripeMeasurement
from attnlab.instruments.trajectory.measure import TrajectoryMeasurement
from attnlab.lab.training.evaluate import evaluate
from attnlab.lab.training.surroundings import deterministically
from attnlab.results import Measured, StoredRun
from attnlab.results.damage import JsonObject
from attnlab.subject import Subject, open_run
from attnlab.surgery.folding import FoldReceipt, has_constant_gates
from attnlab.surgery.folding.fold import fold


class FoldMeasurement(Measurement):
    """The receipt of the fold, with the task's metrics without the gates."""

    name = "fold"

    def settings(self, config: MeasureConfig) -> dict[str, int] | None:
        del config
        return {}

    def measure(self, subject: Subject, config: MeasureConfig, folder: Path) -> FoldReceipt:
        del config, folder
        if not has_constant_gates(subject.network):
            raise DoesNotApplyError
        try:
            plain, receipt = fold(subject.network, example=next(subject.inputs(1)))
        except FoldError as error:
            raise DoesNotApplyError(f"Not folded: {str(error).splitlines()[0]}") from None
        values = evaluate(
            plain, subject.learned(), subject.images(), subject.batch_size, subject.device
        )
        return replace(receipt, values=values)


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
        TrajectoryMeasurement(),
    )
}
"""By name."""


def missing(directory: str | Path, config: MeasureConfig | None = None) -> list[str]:
    """The names of what `config` asks for and the run does not have, or has on fewer images."""
    stored = StoredRun(Path(directory), digested=True)
    config = config or MeasureConfig()
    found = []
    for name, measurement in MEASUREMENTS.items():
        wanted, there = measurement.settings(config), stored.noted.get(name)
        if wanted is None or not measurement.applies(stored.directory):
            continue
        if there is None or any(there.settings.get(k, 0) < v for k, v in wanted.items()):
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
    found: JsonObject | None = None
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
