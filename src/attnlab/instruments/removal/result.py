"""What a network loses as steps go: what `removal_curves` found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from attnlab.instruments.removal.figures import (
    accuracy_figure,
    alone_figure,
    output_change_figure,
    text_loss_figure,
)
from attnlab.page.parts import Page
from attnlab.page.plot import Spec
from attnlab.page.tables import Cell, Table, number_cell
from attnlab.results.base import Result
from attnlab.results.metric import perplexity_of
from attnlab.surgery.words import MEAN_IMAGE_CHANGE


@dataclass(frozen=True)
class RemovalPoint:
    """A network without that many steps."""

    removed: int
    label: str
    """The label of the step that went last; empty if none did."""
    name: str
    score: float | None
    """The score of that step, by the ranking."""
    next: float | None
    """The score of the step that would have gone in its place."""
    output_change: float
    """`mean_image_change` of the output."""
    accuracy: float | None
    """Per cent, if there are labels."""
    loss: float | None = None
    """The loss on a text, in nats per token."""

    @property
    def perplexity(self) -> float | None:
        """The perplexity on a text; None for images."""
        return None if self.loss is None else perplexity_of(self.loss)


@dataclass(frozen=True)
class RemovalCurve:
    """The steps in the order in which a ranking gives them up."""

    ranking: str
    says: str
    points: tuple[RemovalPoint, ...]


@dataclass(frozen=True)
class StepAlone:
    """One step, left out alone."""

    label: str
    name: str
    reason: str
    """Why it cannot be removed, or an empty string; then what follows is empty."""
    scores: dict[str, float]
    """By the name of the ranking, in the whole network."""
    output_change: float | None = None
    accuracy: float | None = None
    loss: float | None = None
    """The loss on a text, in nats per token."""


@dataclass(frozen=True)
class ShortenResult(Result):
    """What a network loses as steps go, one after the other, by each ranking."""

    FORMAT: ClassVar[str] = "attnlab shorten 1"

    network: str
    images: int
    """On which the steps were ranked."""
    test_images: int
    """On which the points were measured."""
    same_images: bool
    """Whether these are the same."""
    accuracy: float | None
    """The accuracy of the whole network, per cent, if there are labels."""
    curves: tuple[RemovalCurve, ...]
    steps: tuple[StepAlone, ...]
    asked: int | None = None
    """How many steps were asked to go; the curves may lead further. None if nothing was said."""
    asked_by: str | None = None
    """The ranking that was asked for."""
    loss: float | None = None
    """The loss of the whole network on a text, in nats per token."""

    @property
    def verdict(self) -> str:
        """What is lost by as many steps as were asked for, by the ranking that was asked for; at
        the last point of the first ranking if nothing was."""
        named = [curve for curve in self.curves if curve.ranking == self.asked_by]
        curve = (named or self.curves)[0]
        reached = [point for point in curve.points if point.removed == self.asked]
        last = (reached or curve.points)[-1]
        without = f"Without {last.removed} step{'s' * (last.removed != 1)}, chosen by "
        change = f"{MEAN_IMAGE_CHANGE} {last.output_change:.2g}"
        if self.loss is not None and last.perplexity is not None:
            return (
                f"{without}{curve.ranking}: perplexity from {perplexity_of(self.loss):.4g} to "
                f"{last.perplexity:.4g}, {change}."
            )
        if self.accuracy is None or last.accuracy is None:
            return f"{without}{curve.ranking}: {change}."
        return (
            f"{without}{curve.ranking}: accuracy from {self.accuracy:.2f} to "
            f"{last.accuracy:.2f} %, {change}."
        )

    def table(self) -> Table:
        """A row for each number of removed steps, a column for each ranking: the accuracy if there
        are labels, of a text the perplexity, else the change of the output."""
        what, cell = self._judged_by()
        rows = [
            [Cell(str(points[0].removed)), *map(cell, points)]
            for points in zip(*(curve.points for curve in self.curves), strict=True)
        ]
        caption = f"{self.network}: {what} on {self.test_images} {self._inputs}, by ranking"
        return Table(["removed", *(curve.ranking for curve in self.curves)], rows, caption)

    @property
    def _inputs(self) -> str:
        return "images" if self.loss is None else "texts"

    def _judged_by(self) -> tuple[str, Callable[[RemovalPoint], Cell]]:
        """What a network without some steps is judged by, and its cell."""
        if self.loss is not None:
            return "perplexity", lambda point: number_cell(point.perplexity, "{:.4g}")
        if self.accuracy is not None:
            return "accuracy, %,", lambda point: number_cell(point.accuracy, "{:.2f}")
        return MEAN_IMAGE_CHANGE, lambda point: number_cell(point.output_change, "{:.3f}")

    def figures(self) -> dict[str, Spec]:
        """One line per ranking: accuracy, if there are labels, and the change of the output; and a
        bar per step that is left out alone."""
        found = {"output_change": output_change_figure(self.curves, self.asked)}
        if self.accuracy is not None:
            found = {"accuracy": accuracy_figure(self.curves, self.asked), **found}
        if self.loss is not None:
            found = {"loss": text_loss_figure(self.curves, self.asked), **found}
        if any(step.output_change is not None for step in self.steps):
            found["alone"] = alone_figure(self.steps)
        return found

    def page(self) -> Page:
        """The curves, the order of the steps, and each step alone."""
        from attnlab.instruments.removal.page import shorten_page

        return shorten_page(self)
