"""The page of a placement, from its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnlab.instruments.place.figures import margin_in_words, place_figure
from attnlab.page.glossary import words
from attnlab.page.parts import Cell, Chip, Code, Figure, Notes, Page, Section, Table, number_cell
from attnlab.page.rendering import render
from attnlab.results.origin import (
    is_untrained,
    network_title,
    provenance_chips,
    provenance_section,
)
from attnlab.results.provenance import UNTRAINED, read_provenance


def place_page(result: Mapping[str, Any]) -> str:
    """Where to put gates, as HTML; `result` is what a place.json holds."""
    chosen = [block for block in result["blocks"] if block["chosen"]]
    rows = [
        [
            Cell(block["label"]),
            Cell(block["name"]),
            Cell("chosen" if block["chosen"] else ""),
            number_cell(block["score"], "{:.4g}"),
            Cell(block["reason"]),
        ]
        for block in result["blocks"]
    ]
    per_stage = " in every stage" if result["per_stage"] else ""
    chips = [
        *provenance_chips(read_provenance(result.get("provenance"))),
        Chip(f"strategy {result['strategy']}"),
        Chip(f"{result['budget']} block{'s' * (result['budget'] != 1)}{per_stage}"),
        Chip(f"{result['images']} images"),
        Chip(f"{result['seconds']:.1f} s"),
    ]
    margins = [Chip(f"margin {margin_in_words(each)}") for each in result["margins"]]
    reasons = Section(
        "Which blocks, and why?",
        f"{result['strategy']}: {result['what']}.",
        [Figure(place_figure(result), wide=True), Notes(margins), words("step", "NSI", "TNS")],
        "; ".join(f"{block['label']}: {block['reason']}" for block in chosen) + ".",
        "Compare with random blocks before you believe it: the study lottery-ticket does so.",
    )
    code = f"gated, receipt = attnlab.insert(network, 'se', where={result['where']!r})"
    sections = [
        reasons,
        Section("Put gates there", "", [Code(code, "Python")]),
        Section(
            "All numbers",
            "",
            [Table(["block", "module", "", result["quantity"], "why"], rows, names=2)],
        ),
    ]
    if result["notes"]:
        notes = [Chip(note, "warn") for note in result["notes"]]
        sections.append(Section("Alerts", "", [Notes(notes)]))
    sections.append(provenance_section(read_provenance(result.get("provenance"))))
    verdict = f"Gates at {', '.join(block['label'] for block in chosen)}."
    if is_untrained(read_provenance(result.get("provenance"))):
        verdict += f" {UNTRAINED}"
    return render(
        Page(
            network_title(str(result["network"]), read_provenance(result.get("provenance"))),
            verdict,
            chips,
            sections,
            "Where a gate belongs",
        )
    )
