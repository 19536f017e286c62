"""The page of a placement."""

from __future__ import annotations

from attnlab.instruments.place.figures import MANY, place_figure
from attnlab.instruments.place.result import Placement
from attnlab.page.glossary import words
from attnlab.page.parts import Chip, Code, Figure, Notes, Page, Section
from attnlab.results.origin import (
    is_untrained,
    network_title,
    notes_section,
    provenance_chips,
    provenance_section,
)
from attnlab.results.provenance import UNTRAINED


def place_page(result: Placement) -> Page:
    """Make the page that says where to put gates, and why."""
    per_stage = " in every stage" if result.per_stage else ""
    chips = [
        *provenance_chips(result.provenance),
        Chip(f"strategy {result.strategy}"),
        Chip(f"{result.budget} block{'s' * (result.budget != 1)}{per_stage}"),
        Chip(f"{result.images} images"),
        Chip(f"{result.seconds:.1f} s"),
    ]
    margins = [Chip(f"Margin {each}.") for each in result.margins]
    reasons = Section(
        "Which blocks, and why?",
        f"{result.strategy}: {result.what}.",
        [
            Figure(place_figure(result), wide=len(result.blocks) > MANY),
            Notes(margins),
            words("step", "NSI", "TNS"),
        ],
        "; ".join(f"{block.label}: {block.reason}" for block in result.chosen) + ".",
        "Compare with random blocks before you believe it: the study lottery-ticket does so.",
    )
    code = f"gated, receipt = attnlab.insert(network, 'se', where={result.where!r})"
    sections = [
        reasons,
        Section("Put gates there", "", [Code(code, "Python")]),
        Section("All numbers", "", [result.table()]),
        *([notes_section(result.notes)] if result.notes else []),
        provenance_section(result.provenance),
    ]
    verdict = f"Gates at {', '.join(block.label for block in result.chosen)}."
    if is_untrained(result.provenance):
        verdict += f" {UNTRAINED}"
    title = network_title(result.network, result.provenance)
    return Page(title, verdict, chips, sections, "Where a gate belongs")
