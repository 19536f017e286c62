"""What a training found; result.json of its directory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from attnlab._strict import Strict
from attnlab.results.base import FORMATS, Result
from attnlab.results.metric import Metric

FILE = "placement.json"


class PlacementRecord(Strict):
    """What a word such as `stiffest:1` came to mean for one run, and what it was computed from."""

    word: str
    """The word, as the study has it."""
    where: str
    """The blocks that it chose, for `insert`."""
    source: str
    """The id of the run that was measured."""
    source_is: str
    """That run in words."""
    images: int
    """How many training images it was measured on."""
    quantity: str
    """What the scores are."""
    scores: dict[str, float | None]
    """By block; None where it has none."""
    reasons: tuple[str, ...]
    """One line per block that was chosen, and one per margin."""


class RunResult(Strict):
    """The result is the last epoch of the recipe. The best epoch was chosen by looking at the test
    images, so it is there for comparison with papers that report it, and never the result."""

    format: Literal[2] = 2
    run_id: str
    label: str
    epochs: int
    metrics: tuple[Metric, ...]
    """What the values are; the first is the result."""
    values: dict[str, float | None]
    """Last epoch, by the metric's name; None where a metric has no meaning for the data."""
    best_value: float
    """The best value of the first metric. Optimistic: the best epoch on the test images."""
    best_epoch: int
    """From 1."""
    train_loss: float
    parameters: int
    macs: int | None
    """Multiply-accumulates for one image; None where they depend on what is found in it."""
    train_images_per_second: float
    """Median over epochs, data included, evaluation left out."""
    data_share: float
    """Share of the training time that was spent on waiting for data."""
    seconds: float
    """All epochs with their evaluation."""
    sites: int | None = None
    """At how many places gates act; None of results that do not say it."""
    placement: PlacementRecord | None = None
    """How these were chosen, where that was by a measurement."""

    @property
    def metric(self) -> Metric:
        """What the result is measured in."""
        return self.metrics[0]

    @property
    def value(self) -> float:
        """The figure that the run is judged by, in that metric."""
        found = self.values[self.metric.name]
        assert found is not None
        return found


def check_numbers(found: Mapping[str, object]) -> None:
    """Refuse a text where result.json has a number, which reading would turn into one."""
    values = found.get("values")
    inner = values if isinstance(values, Mapping) else {}
    for name, value in (*found.items(), *inner.items()):
        if isinstance(value, str) and name not in ("run_id", "label"):
            raise ValueError(f"{name}: expected a number but got {value!r}")


def check_measured(result: RunResult) -> None:
    """Refuse values that the metrics cannot have."""
    if result.values[result.metric.name] is None:
        raise ValueError(f"it has no value of {result.metric.name}")
    for metric in result.metrics:
        value = result.values.get(metric.name)
        if value is not None:
            metric.check_value(value)
    result.metric.check_value(result.best_value)


class Measured(Strict):
    """What was found, with the settings that it was measured with."""

    measurement: str
    settings: dict[str, int] = {}
    """On how many images, and the like."""
    found: dict[str, object] | None
    """The instrument's result; None where it does not apply to the network; a note says why."""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0


def found_result(measured: Measured) -> Result | None:
    """Return what was found, as the result of its instrument; an error where it is not whole. None
    if nothing was found, or if the instrument was not imported, so that its results are not
    known."""
    if measured.found is None:
        return None
    content = dict(measured.found)
    kinds = {kind.instrument(): kind for kind in FORMATS.values()}
    kind = kinds.get(measured.measurement)
    if kind is None:
        return None
    form = content.pop("format", None)
    if form != kind.FORMAT:
        raise ValueError(f"it has format {form!r}, expected {kind.FORMAT!r}")
    return kind.validated(content)
