"""What folding did to a network."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from attnlab.page.parts import Page
from attnlab.page.plot import Spec
from attnlab.page.tables import Cell, Table, number_cell
from attnlab.surgery.folding.curve import WORDS, Curve
from attnlab.surgery.receipt import Receipt, shortened
from attnlab.surgery.repair.result import Repair


@dataclass(frozen=True)
class SiteRow:
    """What became of the gates of one site."""

    site: str
    into: tuple[str, ...]
    """The parameters that took the gate; empty where it was kept."""
    smallest: float
    largest: float
    """The range of the folded gate."""
    error: float | None
    """In float64: the gated branch before against after, relative to its largest value."""
    spread: float | None = None
    """How much a gate that was replaced by a constant varies over the data, relative to that
    constant."""
    predicted_change: float | None = None
    """Of such a gate: the relative change of the output when it alone is replaced; with a budget,
    the predicted cost of it and all that go before it."""
    kept: str = ""
    """Why a gate stays there, or an empty string."""
    undone_by: tuple[str, ...] = ()
    """The parameters that took 1 / gate: of layers that read what is scaled now as it was."""
    silenced: tuple[str, ...] = ()
    """The parameters of which the part is zero now that made a gate of the network's own."""

    def cells(self, replaced: bool, kept: bool) -> list[Cell]:
        """The row of a table; with what a gate `replaced` by a constant has, and why it is
        `kept`."""
        gate = f"{self.smallest:#.3g} to {self.largest:#.3g}" if self.into else "—"
        undone = (f"1/gate: {name}" for name in self.undone_by)
        zero = (f"0: {name}" for name in self.silenced)
        into = ", ".join((*self.into, *undone, *zero))
        numbers = [self.error, *((self.spread, self.predicted_change) if replaced else ())]
        return [
            Cell(self.site),
            Cell(into or "—"),
            Cell(gate),
            *(number_cell(value, "{:.1e}") for value in numbers),
            *([Cell(self.kept)] if kept else []),
        ]


@dataclass(frozen=True, kw_only=True)
class FoldReceipt(Receipt):
    """What folding did. `max_change` and `relative_change` are in the network's own precision."""

    FORMAT: ClassVar[str] = "attnlab fold 1"

    rows: tuple[SiteRow, ...] = ()
    float64_change: float | None = None
    """The relative change of the output, or of what a set is selected from, when everything is
    computed and folded in float64."""
    removed: tuple[str, ...] = ()
    """Attention modules of the network itself that were folded away."""
    affine: tuple[str, ...] = ()
    """Norms that were given affine parameters."""
    fused: bool = False
    """Whether norms and branches were merged as well."""
    curve: Curve | None = None
    """With a budget: what it costs to make gates constant, one after the other."""
    predicted: float | None = None
    """With a budget: the cost of what was done, on the images that chose it."""
    measured: float | None = None
    """The cost of the network handed out, on the images held out."""
    accuracy_before: float | None = None
    """On the images held out, where their classes are known."""
    accuracy_after: float | None = None
    accuracy_error: float | None = None
    """The standard error of the difference of the two, image by image."""
    repair: Repair | None = None
    """What a repair did after the fold."""
    measured_before_repair: float | None = None
    values: dict[str, float | None] = field(default_factory=dict)
    """Metrics of the folded network on the test images, by name, if a study measured them."""

    @property
    def kept(self) -> tuple[SiteRow, ...]:
        """The sites where a gate stays."""
        return tuple(row for row in self.rows if row.kept)

    def __str__(self) -> str:
        errors = [row.error for row in self.rows if row.error is not None]
        lines = [super().__str__()]
        if self.float64_change is not None:
            worst = f", worst site {max(errors):.1e}" if errors else ""
            lines.append(f"  in float64  relative change {self.float64_change:.1e}{worst}")
        if self.curve is not None:
            lines += self._of_budget(self.curve)
        reasons: dict[str, list[str]] = {}
        for row in self.kept:
            reasons.setdefault(row.kept, []).append(row.site)
        lines += [
            f"  kept        {len(sites)} ({shortened(tuple(sites))}): {reason}"
            for reason, sites in reasons.items()
        ]
        return "\n".join(lines)

    def _of_budget(self, curve: Curve) -> list[str]:
        lines = [
            f"  budget      {curve.budget} ({WORDS[curve.cost]}): predicted {self.predicted:.4f} "
            f"on {curve.choosing} images, measured {self.measured:.4f} on {curve.held_out} held out"
        ]
        if self.repair is not None:
            repair = self.repair
            lines.append(
                f"  repair      {repair.epochs} epochs, {repair.parameters:,} parameters "
                f"({repair.moving}): measured {self.measured_before_repair:.4f} before it"
            )
        before, after, error = self.accuracy_before, self.accuracy_after, self.accuracy_error
        if before is not None and after is not None and error is not None:
            lines.append(
                f"  accuracy    {before:.2%} → {after:.2%} ({100 * (after - before):+.2f} ± "
                f"{196 * error:.2f} points, 95 %) on the images held out"
            )
        return lines

    @property
    def replaced(self) -> tuple[SiteRow, ...]:
        """The sites whose gates were not constant, and were made so from images."""
        return tuple(row for row in self.rows if row.spread is not None and row.into)

    @property
    def verdict(self) -> str:
        exact = self.float64_change
        change = (
            "in float64 the output was not compared"
            if exact is None
            else f"the output changes by {exact:.1e} (relative, in float64)"
        )
        if not self.rows:
            return f"There was no gate to fold; branches and norms are merged, and {change}."
        gates = f"**{sum(bool(row.into) for row in self.rows)} of {len(self.rows)}** gates are"
        number = len(self.replaced)
        if not number:
            return f"{gates} folded away; {change}."
        if self.curve is not None:
            return (
                f"{gates} folded away, {number} of them replaced by constants from data: an "
                f"approximation, whose cost on images held out is **{self.measured:.4f}** "
                f"({WORDS[self.curve.cost]}). The fold of the constants itself is exact: {change}."
            )
        moved = self.relative_change
        of_means = "was not measured" if moved is None else f"is **{moved:.1e}** (relative)"
        return (
            f"{gates} folded away, {number} of them replaced by their mean over data: an "
            f"approximation, whose change of the output {of_means}. The fold of the means itself "
            f"is exact: {change}."
        )

    def table(self) -> Table:
        """A row for each site: which parameters took the gate, and how exactly."""
        replaced = any(row.spread is not None for row in self.rows)
        columns = ["site", "folded into", "gate", "error (float64)"]
        columns += ["spread over data", "predicted change"] if replaced else []
        columns += ["kept because"] if self.kept else []
        rows = [row.cells(replaced, bool(self.kept)) for row in self.rows]
        return Table(columns, rows, self.title, names=2)

    def figures(self) -> dict[str, Spec]:
        from attnlab.surgery.folding.figures import curve_figure, gate_range_figure

        folded = [row for row in self.rows if row.into]
        found = {"gates": gate_range_figure(folded)} if folded else {}
        return found if self.curve is None else {"cost": curve_figure(self.curve), **found}

    def page(self) -> Page:
        from attnlab.surgery.folding.page import fold_page

        return fold_page(self)

    def then(self, fused: FoldReceipt) -> FoldReceipt:
        """The receipt of this fold, after which the network was fused as well."""
        changes = [self.float64_change, fused.float64_change]
        known = [change for change in changes if change is not None]
        return replace(
            self,
            action=f"{self.action} and fused it",
            parameters_after=fused.parameters_after,
            macs_after=None if self.macs_before is None else fused.macs_after,
            float64_change=max(known) if len(known) == len(changes) else None,
            notes=(*self.notes, *fused.notes),
            seconds=self.seconds + fused.seconds,
            fused=True,
        )
