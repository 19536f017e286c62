"""What surgery did to a network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from attnlab.page.tables import Cell, Table, number_cell
from attnlab.results.base import Result
from attnlab.surgery.words import largest_in_words

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class Receipt(Result):
    """What surgery did: where, what it costs, and how much the output moved on the example."""

    FORMAT: ClassVar[str] = "attnlab surgery 1"

    action: str
    sites: tuple[str, ...]
    parameters_before: int
    parameters_after: int
    macs_before: int | None
    macs_after: int | None
    """None where the two runs did not compute the same; a note says why."""
    max_change: float | None
    """Largest absolute change of the output on the example; None where nothing was compared."""
    relative_change: float | None
    """`max_change` relative to the largest absolute output: `largest_change`."""
    compared: str = ""
    """What was compared, where that is not the whole output; or why nothing was."""

    @property
    def parameters_added(self) -> int:
        return self.parameters_after - self.parameters_before

    @property
    def macs_added(self) -> int | None:
        if self.macs_before is None or self.macs_after is None:
            return None
        return self.macs_after - self.macs_before

    @property
    def title(self) -> str:
        """What was done, as the beginning of a sentence."""
        return f"{self.action[:1].upper()}{self.action[1:]}"

    @property
    def verdict(self) -> str:
        moved = self.relative_change
        change = (
            "the output was not compared"
            if moved is None
            else f"the output changes by **{moved:.1e}** (relative)"
        )
        return f"{self.title} at {len(self.sites)} sites; {change}."

    def table(self) -> Table:
        """Parameters and MACs, before and after."""
        rows = [
            ("parameters", self.parameters_before, self.parameters_after, self.parameters_added),
            ("MACs", self.macs_before, self.macs_after, self.macs_added),
        ]
        cells = [
            [
                Cell(name),
                number_cell(before, "{:,}"),
                number_cell(after, "{:,}"),
                number_cell(added, "{:+,}"),
            ]
            for name, before, after, added in rows
        ]
        return Table(["", "before", "after", "difference"], cells, self.title)

    def __str__(self) -> str:
        lines = [
            self.action,
            f"  sites       {len(self.sites)}: {shortened(self.sites)}",
            f"  parameters  {self.parameters_before:,} → {self.parameters_after:,} "
            f"({self.parameters_added:+,})",
            f"  MACs        {_macs(self.macs_before, self.macs_after)}",
            f"  output      {_change(self.max_change, self.relative_change, self.compared)}",
            f"  took        {self.seconds:.2f} s",
        ]
        return "\n".join(lines + [f"  note        {note}" for note in self.notes])


def count_parameters(model: nn.Module) -> int:
    """Parameters, shared ones once."""
    from attnlab.residuals.listing import list_parameters  # torch, which pages do without

    return sum(parameter.numel() for _, parameter in list_parameters(model))


def _macs(before: int | None, after: int | None) -> str:
    if before is None or after is None:
        return "not counted"
    return f"{before:,} → {after:,} ({after - before:+,})"


def _change(absolute: float | None, relative: float | None, compared: str) -> str:
    if absolute is None or relative is None:
        return f"not compared: {compared}" if compared else "not compared"
    figures = largest_in_words(absolute, relative)
    return f"{figures}, {compared}" if compared else figures


def shortened(names: tuple[str, ...], most: int = 6) -> str:
    """The first of `names` and the last."""
    if len(names) <= most:
        return ", ".join(names)
    return ", ".join((*names[: most - 1], f"… {names[-1]}"))
