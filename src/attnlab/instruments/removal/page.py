"""The page of a network that loses steps."""

from __future__ import annotations

from attnlab._words import counted
from attnlab.instruments.block_figures import block_figure
from attnlab.instruments.removal.result import RemovalPoint, ShortenResult, StepAlone
from attnlab.page.parts import Cell, Chip, Figure, Page, Row, Section, Table, Text, number_cell
from attnlab.results.origin import (
    network_title,
    notes_section,
    provenance_chips,
    provenance_section,
)
from attnlab.surgery.words import MEAN_IMAGE_CHANGE

_LEAD = (
    "One line per ranking, which gives up one step after the other; `output` and `loss` measure "
    "again after each. Higher accuracy and a smaller change are better. The change is "
    "‖y′ − y‖ / ‖y‖ of an image's answer y, mean over images. Dashes: as many as were asked for."
)


def shorten_page(result: ShortenResult) -> Page:
    """Show what is lost as steps go, in which order they go, and what each does alone."""
    removable = sum(not step.reason for step in result.steps)
    judged = (
        Chip("measured on the same images", "warn")
        if result.same_images
        else Chip(f"measured on {result.test_images} others")
    )
    asked = [] if result.asked is None else [Chip(f"asked for: {counted(result.asked, 'step')}")]
    chips = [
        *asked,
        *provenance_chips(result.provenance),
        Chip(f"{removable} of {len(result.steps)} steps can go"),
        Chip(f"ranked on {result.images} images"),
        judged,
        Chip(f"{result.seconds:.1f} s"),
    ]
    figures = result.figures()
    alone_bars = figures.pop("alone", None)
    bars = [] if alone_bars is None else [block_figure(alone_bars)]
    alone = "What each ranking says of a step in the whole network, and what leaving it out does."
    sections = [
        Section("What is lost as steps go?", _LEAD, [Row([*map(Figure, figures.values())])]),
        Section("In which order?", "", [_order(result)]),
        Section(
            "How much does each step matter alone?",
            alone,
            [*bars, _steps(result), *_staying(result)],
        ),
        *([notes_section(result.notes)] if result.notes else []),
        provenance_section(result.provenance),
    ]
    title = network_title(result.network, result.provenance)
    return Page(title, result.verdict, chips, sections, "Fewer steps")


def _judged_by(result: ShortenResult) -> str:
    return "accuracy, %" if result.loss is None else "loss, nats per token"


def _judged(result: ShortenResult, found: RemovalPoint | StepAlone) -> Cell:
    if result.loss is None:
        return number_cell(found.accuracy, "{:.2f}")
    return number_cell(found.loss, "{:.4f}")


def _order(result: ShortenResult) -> Table:
    rows = [
        [
            Cell(curve.ranking),
            Cell(f"{point.label} ({point.name})" if point.label else "none"),
            number_cell(point.removed, "{}"),
            number_cell(point.score, "{:.3g}"),
            number_cell(point.output_change, "{:.3f}"),
            _judged(result, point),
        ]
        for curve in result.curves
        for point in curve.points
    ]
    columns = [
        "ranking",
        "step that goes",
        "removed",
        "score",
        MEAN_IMAGE_CHANGE,
        _judged_by(result),
    ]
    return Table(columns, rows, names=2)


def _steps(result: ShortenResult) -> Table:
    rankings = [curve.ranking for curve in result.curves]
    rows = [
        [
            Cell(step.label, small="stays" if step.reason else ""),
            Cell(step.name),
            *(number_cell(step.scores.get(ranking), "{:.3g}") for ranking in rankings),
            number_cell(step.output_change, "{:.3f}"),
            _judged(result, step),
        ]
        for step in result.steps
    ]
    columns = ["step", "block", *rankings, MEAN_IMAGE_CHANGE, _judged_by(result)]
    return Table(columns, rows, names=2)


def _staying(result: ShortenResult) -> list[Text]:
    """Why steps cannot go, each reason once, on a line of its own."""
    reasons: dict[str, list[str]] = {}
    for step in result.steps:
        if step.reason:
            reasons.setdefault(step.reason, []).append(step.label)
    return [Text(f"{', '.join(s)}: {why}.", quiet=True) for why, s in reasons.items()]
