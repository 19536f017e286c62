"""The page of a network that loses steps, from a shorten.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnlab.instruments.removal.figures import shorten_figure
from attnlab.page.parts import Cell, Chip, Figure, Page, Row, Section, Table, number_cell
from attnlab.page.rendering import render
from attnlab.results.origin import network_title, provenance_chips, provenance_section
from attnlab.results.provenance import read_provenance


def shorten_page(result: Mapping[str, Any]) -> str:
    """Curves of one network as HTML; `result` is what a shorten.json holds."""
    removable = [step for step in result["steps"] if not step["reason"]]
    chips = [
        *provenance_chips(read_provenance(result.get("provenance"))),
        Chip(f"{len(removable)} of {len(result['steps'])} steps can go"),
        Chip(f"ranked on {result['images']} images"),
        _measured_on(result),
        Chip(f"{result['seconds']:.1f} s"),
    ]
    labelled = result["accuracy"] is not None
    figures = [Figure(shorten_figure(result, "accuracy"))] if labelled else []
    figures.append(Figure(shorten_figure(result, "output_change")))
    lead = (
        "One line per ranking, which gives up one step after the other; `output` and `loss` "
        "measure again after each. Higher accuracy and a smaller change are better."
    )
    sections = [
        Section("What is lost as steps go?", lead, [Row(figures)]),
        Section("In which order?", "", [_order(result)]),
        Section(
            "How much does each step matter alone?",
            "What each ranking says of a step in the whole network, beside what leaving it out "
            "does.",
            [_steps(result)],
        ),
        provenance_section(read_provenance(result.get("provenance"))),
    ]
    return render(
        Page(
            network_title(str(result["network"]), read_provenance(result.get("provenance"))),
            _verdict(result),
            chips,
            sections,
            "Fewer steps",
        )
    )


def _measured_on(result: Mapping[str, Any]) -> Chip:
    if result["same_images"]:
        return Chip("measured on the same images", "warn")
    return Chip(f"measured on {result['test_images']} others")


def _order(result: Mapping[str, Any]) -> Table:
    rows = [
        [
            Cell(curve["ranking"]),
            Cell(f"{point['label']} ({point['name']})" if point["label"] else "none"),
            number_cell(point["removed"], "{}"),
            number_cell(point["score"], "{:.3g}"),
            number_cell(point["output_change"], "{:.3f}"),
            number_cell(point["accuracy"], "{:.2f}"),
        ]
        for curve in result["curves"]
        for point in curve["points"]
    ]
    columns = ["ranking", "step that goes", "removed", "score", "change of output", "accuracy, %"]
    return Table(columns, rows, names=2)


def _steps(result: Mapping[str, Any]) -> Table:
    rankings = [curve["ranking"] for curve in result["curves"]]
    rows = [
        [
            Cell(step["label"], small=step["reason"]),
            Cell(step["name"]),
            *(number_cell(step["scores"].get(ranking), "{:.3g}") for ranking in rankings),
            number_cell(step["output_change"], "{:.3f}"),
            number_cell(step["accuracy"], "{:.2f}"),
        ]
        for step in result["steps"]
    ]
    columns = ["step", "block", *rankings, "change of output", "accuracy, %"]
    return Table(columns, rows, names=2)


def _verdict(result: Mapping[str, Any]) -> str:
    """The first ranking at its last point, in a sentence."""
    curve = result["curves"][0]
    last = curve["points"][-1]
    steps = f"{last['removed']} step{'s' * (last['removed'] != 1)}"
    change = f"the output changes by **{last['output_change']:.2g}**, relative"
    if last["accuracy"] is None:
        return f"Without {steps}, chosen by {curve['ranking']}, {change}."
    return (
        f"Without {steps}, chosen by {curve['ranking']}, accuracy goes from "
        f"**{result['accuracy']:.2f} to {last['accuracy']:.2f} %**, and {change}."
    )
