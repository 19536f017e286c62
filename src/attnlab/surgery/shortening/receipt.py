"""What shortening did to a network."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from attnlab.results.metric import perplexity_of
from attnlab.surgery.receipt import Receipt
from attnlab.surgery.words import MEAN_IMAGE_CHANGE
from attnlab.timing import Latency

_TIE = 1e-8
"""Of the share of TNS, whose ties NSI decides."""


@dataclass(frozen=True)
class RemovedStep:
    """One step that went, and why."""

    label: str
    name: str
    score: float | None = None
    """By the ranking; None where it was named by hand."""
    next: float | None = None
    """The score of the step that would have gone in its place."""

    def why(self, says: str) -> str:
        """`1.2 (layer1.2) goes: NSI 0.21, the next has 0.34`."""
        if self.score is None:
            return f"{self.label} ({self.name}) goes: it was named"
        following = "" if self.next is None else f", the next has {shown(self.next)}"
        return f"{self.label} ({self.name}) goes: {says} {shown(self.score)}{following}"


def shown(score: float) -> str:
    """Three digits; 0 for what only decides a tie."""
    return "0" if abs(score) < _TIE else f"{score:.3g}"


@dataclass(frozen=True, kw_only=True)
class ShortenReceipt(Receipt):
    """What shortening did. `sites` are the removed steps; `max_change` and `relative_change` are
    those of the largest output, on the images or the example."""

    FORMAT: ClassVar[str] = "attnlab shortening 1"

    rows: tuple[RemovedStep, ...] = ()
    says: str = ""
    """What a score is; empty where the steps were named."""
    images: int = 0
    """On how many the change and the accuracy were measured; 0 without images."""
    output_change: float | None = None
    """`mean_image_change` of the output on these images."""
    accuracy_before: float | None = None
    """Per cent, if there are labels."""
    accuracy_after: float | None = None
    loss_before: float | None = None
    """The loss on a text, in nats per token; its perplexity is e to that."""
    loss_after: float | None = None
    error: float | None = None
    """Relative, against the network whose branches are multiplied by zero, before any repair ..."""
    precision: str = ""
    """... in this precision."""
    gates: tuple[str, ...] = ()
    """Inserted gates that went with their steps."""
    own_gates: tuple[str, ...] = ()
    """The network's own gates, and gates inside norms, that did."""
    replaced: dict[str, str] = field(default_factory=dict)
    """What took the place of which module: see `attnlab.surgery.shortening.stand_ins`."""
    repaired: int = 0
    """How many norms were estimated again."""
    latency: Latency | None = None
    """Interleaved with the whole network, if it was asked for."""

    @property
    def lines(self) -> list[str]:
        """One per removed step: what goes and why."""
        return [row.why(self.says) for row in self.rows]

    def __str__(self) -> str:
        lines = [super().__str__()]
        if self.output_change is not None:
            lines.append(
                f"  images      {self.images}: {MEAN_IMAGE_CHANGE} {self.output_change:.3g}"
            )
        if self.accuracy_before is not None and self.accuracy_after is not None:
            change = self.accuracy_after - self.accuracy_before
            lines.append(
                f"  accuracy    {self.accuracy_before:.2f} → {self.accuracy_after:.2f} % "
                f"({change:+.2f})"
            )
        if self.loss_before is not None and self.loss_after is not None:
            before, after = self.loss_before, self.loss_after
            lines.append(
                f"  text        loss {before:.4f} → {after:.4f} nats per token "
                f"({after - before:+.4f}), perplexity {perplexity_of(before):.4g} → "
                f"{perplexity_of(after):.4g}"
            )
        if self.error is not None:
            lines.append(
                f"  exact       {self.error:.1e} in {self.precision}, against branches times zero"
            )
        gone = (*self.gates, *self.own_gates)
        if gone:
            lines.append(f"  gates       {len(gone)} went too: {', '.join(gone)}")
        if self.repaired:
            lines.append(f"  repaired    {self.repaired} norms, statistics estimated again")
        if self.latency is not None:
            lines.append(f"  latency     {self.latency}")
        return "\n".join((*lines, *(f"  {line}" for line in self.lines)))
