"""What was measured of the steps of a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, ClassVar

from attnlab._errors import OptionError
from attnlab.instruments.stiffness import figures
from attnlab.instruments.stiffness.choices import Convention, Granularity, Tokens
from attnlab.page.parts import Page
from attnlab.page.plot import Spec
from attnlab.page.tables import Cell, Table, number_cell
from attnlab.results.base import Number, Numbers, Result

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class StepResult:
    """NSI of one step over all inputs."""

    label: str
    """`1.0`: stage and block; `1.0:1` is the second step of a transformer block."""
    stage: int
    name: str
    kind: str
    kept: bool
    """Whether it counts for TNS; the first step of every stage does not."""
    gated: bool
    """Whether attnlab inserted a gate on its branch, at its end or further inside."""
    mean: Number
    spread: Number
    minimum: Number
    quantile_05: Number
    median: Number
    quantile_95: Number
    maximum: Number
    stiffest_share: Number
    """Share of the inputs of which it is the stiffest step."""
    streams: Numbers = ()
    """NSI of every stream, of a state of several (hyper-connections): mean over inputs."""
    si: float | None = None
    """Mean SI of the branch over the sampled inputs."""
    si_residual: float | None = None
    """The largest residual of those."""


@dataclass(frozen=True)
class StiffestStep:
    """The step that is the stiffest of most inputs."""

    label: str
    name: str
    share: float
    """The share of the inputs whose stiffest step it is."""


def most_often_stiffest(steps: Sequence[StepResult]) -> StiffestStep | None:
    """The step that is the stiffest of most inputs, the first if tied; None where no stage keeps a
    step. What is stiffest of one input says `attnlab.instruments.stiffness.total.stiffest`."""
    step = max(steps, key=lambda step: step.stiffest_share)
    if step.stiffest_share == 0:
        return None
    return StiffestStep(step.label, step.name, step.stiffest_share)


@dataclass(frozen=True)
class StiffnessResult(Result):
    """The stiffness of a network on a data set."""

    FORMAT: ClassVar[str] = "attnlab stiffness 1"

    network: str
    convention: Convention
    plan: str
    parameters: int
    inputs: int
    skipped: int
    """Inputs left out because a norm was zero or not finite."""
    tns: Number
    """Total neural stiffness, exact, mean over inputs."""
    tns_spread: Number
    """Its standard deviation over inputs."""
    stiffest_share_of_tns: Number
    """Mean share of an input's TNS that its stiffest step has on its own."""
    stiffest: StiffestStep | None
    """None where no stage keeps a step after its first."""
    nsi: tuple[StepResult, ...]
    relative_degrees: tuple[float, ...]
    """M₁ of the grid."""
    absolute_degrees: tuple[float, ...]
    """M₂ of the grid."""
    surface: tuple[tuple[Number, ...], ...]
    """δ(M): share of inputs that are stiff with degree M, M₁ × M₂."""
    proportion: tuple[tuple[Number, ...], ...]
    """p̂(M): share of the kept steps that are, M₁ × M₂."""
    proportion_integral: Number
    """∫ p̂(M) dM over all M ≥ 0, with L the number of kept steps."""
    granularity: Granularity = "step"
    """What one step is: a residual addition, or all additions of a block."""
    tokens: Tokens = "all"
    """Which tokens of a transformer's states were counted."""
    stream_tns: Numbers = ()
    """TNS of every stream, where all steps have the same streams."""

    def slim(self) -> StiffnessResult:
        """Leave out the surfaces."""
        return replace(self, surface=(), proportion=())

    @property
    def depth(self) -> int:
        """The number of steps."""
        return len(self.nsi)

    @property
    def tns_error(self) -> float:
        """The standard error of TNS over inputs."""
        return self.tns_spread / max(self.inputs, 1) ** 0.5

    @property
    def verdict(self) -> str:
        """TNS, the stiffest step, and what was counted."""
        text = (
            f"TNS {self.tns:.4f} ± {self.tns_error:.4f} (standard error over {self.inputs} inputs)"
        )
        if self.stiffest is not None:
            share = self.stiffest_share_of_tns
            own = f"{100 * share:.0f} % of its TNS on its own"
            text += (
                f"; stiffest step {self.stiffest.label}, of {100 * self.stiffest.share:.0f} % of "
                f"the inputs; an input's stiffest step has "
                f"{own if isfinite(share) else 'no share of a TNS of 0'}"
            )
        text += f". ∫p̂ {self.proportion_integral:.4f} (L counts kept steps)."
        skipped = f" {self.skipped} inputs with a norm that is zero or not finite were skipped."
        return text + (skipped if self.skipped else "")

    def table(self) -> Table:
        """A row per step; with SI, if that was measured."""
        has_si = any(step.si is not None for step in self.nsi)
        columns = ["step", "module", "NSI", "spread", "5 %", "median", "95 %", "stiffest of"]
        columns += ["SI", "residual"] if has_si else []
        streams = max((len(step.streams) for step in self.nsi), default=0)
        columns += [f"stream {number + 1}" for number in range(streams)]
        rows = [
            [
                *_cells(step),
                *(_si_cells(step) if has_si else ()),
                *_stream_cells(step, streams),
            ]
            for step in self.nsi
        ]
        title = f"{self.network}, NSI by convention {self.convention!r}"
        title += f", {self.tokens} tokens" if self.tokens != "all" else ""
        title += f"; {self.plan}, the first {self.granularity} of every stage is not counted"
        return Table(columns, rows, title, names=2)

    def rows(self) -> list[dict[str, object]]:
        """One dictionary per step."""
        return [asdict(step) for step in self.nsi]

    def to_frame(self) -> pandas.DataFrame:
        """One row per step, as a pandas data frame."""
        try:
            import pandas
        except ImportError:
            raise OptionError(
                "to_frame() needs pandas, which is not installed: pip install 'attnlab[frame]'. "
                "The same rows as dictionaries: .rows()."
            ) from None
        return pandas.DataFrame(self.rows()).set_index("label")

    def figures(self) -> dict[str, Spec]:
        """Vega-Lite specifications: `nsi` (the paper's Fig. 3), `surface` (2), `proportion` (6)."""
        return {
            "nsi": figures.nsi_figure(self.nsi, figures.title(self, "NSI per step")),
            "surface": figures.surface_figure(self),
            "proportion": figures.proportion_figure(self),
        }

    def page(self) -> Page:
        """How stiff each step is, how many inputs and steps are stiff, and all numbers."""
        from attnlab.instruments.stiffness.page import stiffness_page

        return stiffness_page(self)

    def __repr__(self) -> str:
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        stiffest = ""
        if self.stiffest is not None:
            share = f"{100 * self.stiffest.share:.0f} %"
            stiffest = f", stiffest {self.stiffest.label} in {share} of them"
        return (
            f"StiffnessResult({self.network}: TNS {self.tns:.4g} ± {self.tns_spread:.2g} over "
            f"{self.inputs} inputs{skipped}, convention {self.convention!r}, {self.plan}{stiffest})"
        )


def _cells(step: StepResult) -> list[Cell]:
    values = (step.mean, step.spread, step.quantile_05, step.median, step.quantile_95)
    share = Cell(f"{100 * step.stiffest_share:.0f} %", order=step.stiffest_share)
    return [
        Cell(step.label),
        Cell(step.name),
        *(number_cell(value, "{:.3f}") for value in values),
        share if step.kept else Cell("not counted", tone="quiet"),
    ]


def _stream_cells(step: StepResult, number: int) -> list[Cell]:
    values = (*step.streams, *([None] * (number - len(step.streams))))
    return [number_cell(value, "{:.3f}") for value in values]


def _si_cells(step: StepResult) -> list[Cell]:
    return [number_cell(step.si, "{:.3f}"), number_cell(step.si_residual, "{:.0e}")]
