"""What networks keep of their result under noise in their norms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from attnlab.instruments.noise.figures import noise_figure
from attnlab.page.parts import Page
from attnlab.page.plot import Spec
from attnlab.page.tables import Cell, Table, number_cell
from attnlab.results.base import Result
from attnlab.results.metric import Metric
from attnlab.results.provenance import Provenance

Kind = Literal["random", "constant", "batch"]


@dataclass(frozen=True)
class NoisePoint:
    """One network under one noise; values in the metric's unit."""

    label: str
    strength: tuple[float, ...]
    """σ; a and b; or n."""
    values: tuple[float, ...]
    """One per draw. Constant noise has nothing to draw."""
    mean: float
    low: float | None
    """Lower end of Student's t interval of the mean over draws, on these images; None with one."""
    high: float | None


@dataclass(frozen=True)
class NoiseCurve:
    """One network under all noises."""

    network: str
    clean: float
    """Its result without noise, in the metric's unit."""
    norms: int
    """How many norms carried the noise."""
    points: tuple[NoisePoint, ...]
    origin: Provenance | None = None
    """Where the network comes from, if several are compared."""


@dataclass(frozen=True)
class NoiseResult(Result):
    """The result of one network, or of several, against the strength of one kind of noise."""

    FORMAT: ClassVar[str] = "attnlab noise 1"

    kind: Kind
    metric: Metric
    images: int
    draws: int
    seed: int
    networks: tuple[NoiseCurve, ...]

    @property
    def verdict(self) -> str:
        """Say what the strongest noise takes from each network."""
        return self.in_words("{:.2f} → {:.2f}")

    def in_words(self, change: str) -> str:
        """The verdict, with the result without and under the strongest noise in the form of
        `change`."""
        said = (
            f"{curve.network}: {change.format(curve.clean, curve.points[-1].mean)} under "
            f"{curve.points[-1].label}"
            for curve in self.networks
        )
        return f"{self.metric.label} of {'; '.join(said)}."

    def table(self) -> Table:
        """A row for each network without noise, and one for each strength."""
        unit = f" ({self.metric.unit})" if self.metric.unit else ""
        columns = ["network", "noise", f"{self.metric.label}{unit}", "low", "high", "change"]
        rows = []
        for curve in self.networks:
            clean = number_cell(curve.clean, "{:.2f}")
            none = Cell(f"none ({curve.norms} norms)")
            rows.append([Cell(curve.network), none, clean, Cell("—"), Cell("—"), Cell("—")])
            rows += [_row(curve, point) for point in curve.points]
        draws = f"{self.draws} draw{'s' * (self.draws != 1)}"
        caption = f"{self.kind} noise in test, {self.images} images, {draws}"
        return Table(columns, rows, caption, names=2)

    def figures(self) -> dict[str, Spec]:
        """`noise`: the result against the strength, with the interval over draws."""
        return {"noise": noise_figure(self)}

    def page(self) -> Page:
        """How much is lost, all numbers, and what they do not say."""
        from attnlab.instruments.noise.page import noise_page

        return noise_page(self)


def _row(curve: NoiseCurve, point: NoisePoint) -> list[Cell]:
    return [
        Cell(curve.network),
        Cell(point.label),
        *(number_cell(value, "{:.2f}") for value in (point.mean, point.low, point.high)),
        number_cell(point.mean - curve.clean, "{:+.2f}"),
    ]
