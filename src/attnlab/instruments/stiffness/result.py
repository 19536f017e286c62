"""What a measurement found: one object that prints, plots, and goes to JSON and back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._errors import InputError, OptionError, unknown_name
from attnlab._files import write_whole
from attnlab.instruments.stiffness import result_figures as figures
from attnlab.instruments.stiffness.conventions import Convention
from attnlab.instruments.stiffness.granularity import Granularity
from attnlab.instruments.stiffness.tokens import Tokens
from attnlab.page.plot import Spec, to_svg
from attnlab.results.provenance import Provenance, read_provenance

if TYPE_CHECKING:
    import pandas

FORMAT = "attnlab stiffness 1"


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
    mean: float
    spread: float
    minimum: float
    quantile_05: float
    median: float
    quantile_95: float
    maximum: float
    stiffest_share: float
    """Share of the inputs of which it is the stiffest step."""
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
    """Of the inputs."""


def most_often_stiffest(steps: Sequence[StepResult]) -> StiffestStep | None:
    """The step that is the stiffest of most inputs, the first if tied; None where no stage keeps a
    step. What is stiffest of one input says `attnlab.instruments.stiffness.stiffest.stiffest`."""
    step = max(steps, key=lambda step: step.stiffest_share)
    if step.stiffest_share == 0:
        return None
    return StiffestStep(step.label, step.name, step.stiffest_share)


@dataclass(frozen=True)
class StiffnessResult:
    """The stiffness of a network on a data set."""

    network: str
    convention: Convention
    plan: str
    parameters: int
    inputs: int
    skipped: int
    """Inputs left out because a norm was zero or not finite."""
    tns: float
    """Total neural stiffness, exact, mean over inputs."""
    tns_spread: float
    """Its standard deviation over inputs."""
    stiffest_share_of_tns: float
    """Mean share of an input's TNS that its stiffest step has on its own."""
    stiffest: StiffestStep | None
    """None where no stage keeps a step after its first."""
    nsi: tuple[StepResult, ...]
    relative_degrees: tuple[float, ...]
    """M₁ of the grid."""
    absolute_degrees: tuple[float, ...]
    """M₂ of the grid."""
    surface: tuple[tuple[float, ...], ...]
    """δ(M): share of inputs that are stiff with degree M, M₁ × M₂."""
    proportion: tuple[tuple[float, ...], ...]
    """p̂(M): share of the kept steps that are, M₁ × M₂."""
    proportion_integral: float
    """∫ p̂(M) dM over all M ≥ 0, with L the number of kept steps."""
    seconds: float
    notes: tuple[str, ...] = field(default=())
    """What to know when reading the numbers."""
    granularity: Granularity = "step"
    """What one step is: a residual addition, or all additions of a block."""
    tokens: Tokens = "all"
    """Which tokens of a transformer's states were counted."""
    provenance: Provenance | None = None
    """Where it comes from, if a command measured it."""

    @property
    def depth(self) -> int:
        """The number of steps."""
        return len(self.nsi)

    def rows(self) -> list[dict[str, Any]]:
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

    def to_json(self) -> str:
        """All of it as JSON text; NaN is null."""
        return json.dumps({"format": FORMAT, **_without_nan(asdict(self))}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> StiffnessResult:
        """The result that `to_json` wrote."""
        data = json.loads(text)
        if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
            raise InputError(f"Expected a file written by to_json ({FORMAT!r}) but got another.")
        steps = tuple(StepResult(**_with_nan(step, StepResult)) for step in data.pop("nsi"))
        for key in ("surface", "proportion"):
            data[key] = tuple(tuple(row) for row in data[key])
        for key in ("relative_degrees", "absolute_degrees", "notes"):
            data[key] = tuple(data[key])
        # Files of version 0.1 do not say which step is the stiffest.
        stiffest = most_often_stiffest(steps)
        if data.get("stiffest") is not None:
            stiffest = StiffestStep(**data["stiffest"])
        data["provenance"] = read_provenance(data.get("provenance"))
        return cls(nsi=steps, **{**_with_nan(data, cls), "stiffest": stiffest})

    def save(self, path: str | Path) -> Path:
        """Write `to_json()` to `path`, whole or not at all."""
        return write_whole(Path(path), self.to_json() + "\n")

    @classmethod
    def load(cls, path: str | Path) -> StiffnessResult:
        """Read what `save` wrote."""
        return cls.from_json(Path(path).read_text(encoding="utf-8"))

    def figures(self) -> dict[str, Spec]:
        """Vega-Lite specifications: `nsi` (the paper's Fig. 3), `surface` (2), `proportion` (6)."""
        return {
            "nsi": figures.nsi_figure(self),
            "surface": figures.surface_figure(self),
            "proportion": figures.proportion_figure(self),
        }

    def plot(self, figure: str = "nsi") -> str:
        """One of `figures()` as SVG text."""
        specs = self.figures()
        if figure not in specs:
            raise unknown_name("figure", figure, specs)
        return to_svg(specs[figure])

    def _repr_svg_(self) -> str:
        return self.plot()

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


def _without_nan(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _without_nan(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_without_nan(value) for value in tree]
    return None if isinstance(tree, float) and tree != tree else tree


def _with_nan(data: dict[str, Any], of: type) -> dict[str, Any]:
    """null is NaN again where the field is a plain float."""
    plain = {f.name for f in fields(of) if f.type == "float"}
    return {k: float("nan") if v is None and k in plain else v for k, v in data.items()}
