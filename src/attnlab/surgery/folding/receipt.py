"""What folding did to a network."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from attnlab._errors import InputError
from attnlab._files import write_whole
from attnlab.results.provenance import Provenance, read_provenance
from attnlab.surgery.folding.curve import WORDS, Curve, read_curve
from attnlab.surgery.receipt import Receipt, shortened
from attnlab.surgery.repair import Repair

FORMAT = "attnlab fold 1"


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
    """Of a gate that was replaced by a constant: its deviation over the data, relative to that."""
    predicted_change: float | None = None
    """Of such a gate: the relative change of the output when it alone is replaced; with a budget,
    the predicted cost of it and all that go before it."""
    kept: str = ""
    """Why a gate stays there, or an empty string."""
    undone_by: tuple[str, ...] = ()
    """The parameters that took 1 / gate: of layers that read what is scaled now as it was."""

    def __str__(self) -> str:
        parts = [f"{self.site}:"]
        if self.into:
            undone = f", 1/gate → {', '.join(self.undone_by)}" if self.undone_by else ""
            into = f"{', '.join(self.into)}{undone}"
            parts.append(f"gate {self.smallest:.3g} to {self.largest:.3g} → {into}")
        if self.spread is not None:
            change = self.predicted_change
            told = "" if change is None else f", predicted change {change:.2g}"
            parts.append(f"(spread {self.spread:.2g}{told})")
        if self.error is not None:
            parts.append(f"(error {self.error:.1e})")
        if self.kept:
            parts.append(f"kept: {self.kept}")
        return " ".join(parts)


def _row(data: dict[str, Any]) -> SiteRow:
    names = {name: tuple(data[name]) for name in ("into", "undone_by")}
    return SiteRow(**{**data, **names})


def _repair(data: dict[str, Any] | None) -> Repair | None:
    return None if data is None else Repair(**{**data, "losses": tuple(data["losses"])})


@dataclass(frozen=True)
class FoldReceipt(Receipt):
    """What folding did. `max_change` and `relative_change` are in the network's own precision."""

    rows: tuple[SiteRow, ...] = field(default=())
    float64_change: float | None = None
    """The relative change of the output, or of what a set is selected from, when everything is
    computed and folded in float64."""
    removed: tuple[str, ...] = field(default=())
    """Attention modules of the network itself that were folded away."""
    affine: tuple[str, ...] = field(default=())
    """Norms that were given affine parameters."""
    fused: bool = False
    """Whether norms and branches were merged as well."""
    provenance: Provenance | None = None
    """Where the network comes from, if a command folded it."""
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

    def table(self) -> str:
        """One line per site."""
        return "\n".join(str(row) for row in self.rows)

    def to_json(self) -> str:
        """All of it as JSON text."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> FoldReceipt:
        """The receipt that `to_json` wrote."""
        data = json.loads(text)
        if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
            raise InputError(f"Expected a file written by to_json ({FORMAT!r}) but got another.")
        rows = tuple(_row(row) for row in data.pop("rows"))
        for key in ("sites", "notes", "removed", "affine"):
            data[key] = tuple(data[key])
        source = read_provenance(data.pop("provenance", None))
        curve = read_curve(data.pop("curve", None))
        repair = _repair(data.pop("repair", None))
        return cls(rows=rows, provenance=source, curve=curve, repair=repair, **data)

    def save(self, path: str | Path) -> Path:
        """Write `to_json()` to `path`, whole or not at all."""
        return write_whole(Path(path), self.to_json() + "\n")

    @classmethod
    def load(cls, path: str | Path) -> FoldReceipt:
        """Read what `save` wrote."""
        return cls.from_json(Path(path).read_text(encoding="utf-8"))
