"""What merging layers did to a network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from attnlab.page.tables import Cell, Table
from attnlab.surgery.receipt import Receipt, shortened

Kind = Literal["block", "branches", "norm", "scale"]
_WORDS: dict[Kind, str] = {
    "block": "blocks by their own methods",
    "branches": "sums of branches",
    "norm": "norms",
    "scale": "scales",
}


@dataclass(frozen=True)
class MergedLayer:
    """One module, or one scale, that inference no longer computes."""

    name: str
    kind: Kind


@dataclass(frozen=True)
class LayerLeft:
    """One that stays, and why."""

    name: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class FuseReceipt(Receipt):
    """What fusing did. `max_change` and `relative_change` are in the network's own precision."""

    FORMAT: ClassVar[str] = "attnlab fuse 1"

    merged: tuple[MergedLayer, ...] = ()
    left: tuple[LayerLeft, ...] = ()
    norms_before: int = 0
    """BatchNorms, wherever they are in the network."""
    norms_after: int = 0
    layers_before: int = 0
    """Modules with parameters or buffers of their own."""
    layers_after: int = 0
    float64_change: float | None = None
    """The relative change of the output when all is computed and merged in float64."""

    def count(self, kind: Kind) -> int:
        """Return how many of this kind were merged."""
        return sum(each.kind == kind for each in self.merged)

    @property
    def verdict(self) -> str:
        exact = self.float64_change
        change = (
            "the output was not compared in float64"
            if exact is None
            else f"the output changes by {exact:.1e} (relative, in float64)"
        )
        return (
            f"**{self.norms_before} → {self.norms_after}** BatchNorms, "
            f"{self.layers_before} → {self.layers_after} layers; {change}."
        )

    def table(self) -> Table:
        """A row for each kind, then for each module that stays."""
        rows = [
            [Cell(words), Cell(str(self.count(kind))), Cell("merged")]
            for kind, words in _WORDS.items()
        ]
        rows += [
            [Cell(shortened(tuple(names))), Cell(str(len(names))), Cell(f"stays: {reason}")]
            for reason, names in self._reasons().items()
        ]
        return Table(["what", "number", ""], rows, self.title, names=1)

    def _reasons(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for each in self.left:
            found.setdefault(each.reason, []).append(each.name)
        return found

    def __str__(self) -> str:
        exact = self.float64_change
        counts = [f"{self.count(kind)} {words}" for kind, words in _WORDS.items()]
        lines = super().__str__().splitlines()
        lines[1:2] = [
            f"  merged      {', '.join(counts)}",
            f"  BatchNorms  {self.norms_before} → {self.norms_after}",
            f"  layers      {self.layers_before} → {self.layers_after}",
        ]
        if exact is not None:
            lines.append(f"  in float64  relative change {exact:.1e}")
        lines += [
            f"  left        {len(names)} ({shortened(tuple(names))}): {reason}"
            for reason, names in self._reasons().items()
        ]
        return "\n".join(lines)
