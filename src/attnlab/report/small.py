"""Smaller pages, of the same parts: one measurement of one network each, from its JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attnlab._provenance import UNTRAINED
from attnlab.plot.gates import (
    gates_figure,
    maps_figure,
    spread_figure,
    stripe_ratio,
    stripes_in_words,
)
from attnlab.plot.stiffness import nsi_figure, stiffest_step, surface_pictures
from attnlab.report.fold_page import fold_page as fold_page
from attnlab.report.page import render
from attnlab.report.parts import (
    Cell,
    Chip,
    Figure,
    Notes,
    Page,
    Row,
    Section,
    Table,
    Text,
    number_cell,
)
from attnlab.report.provenance import (
    is_untrained,
    network_title,
    provenance_chips,
    provenance_section,
)

_PICTURES = 24
"""Of how many gates a page shows pictures, from the first to the last."""


def stiffness_page(result: Mapping[str, Any]) -> str:
    """The stiffness of one network as HTML; `result` is what a stiffness.json holds."""
    stiffest = stiffest_step(result)
    verdict = f"TNS **{result['tns']:.4g}** over {result['inputs']} inputs."
    if is_untrained(result):
        verdict += f" {UNTRAINED}"
    if stiffest is not None:
        verdict += (
            f" Block **{stiffest['label']}** ({stiffest['name']}) is the stiffest of "
            f"{100 * stiffest['share']:.0f} % of them."
        )
    chips = [
        *provenance_chips(result),
        Chip(f"{result['inputs']} inputs"),
        Chip(f"convention {result['convention']}"),
        Chip(result["plan"]),
        Chip(f"{result['parameters'] / 1e6:.2f} M parameters"),
        Chip(f"{result['seconds']:.1f} s"),
    ]
    if result["skipped"]:
        chips.append(Chip(f"{result['skipped']} inputs skipped", "warn"))
    values = ("mean", "spread", "quantile_05", "quantile_95")
    rows = [
        [
            Cell(step["label"]),
            Cell(step["name"]),
            *(number_cell(step[value], "{:.3f}") for value in values),
            Cell(f"{100 * step['stiffest_share']:.0f} %", order=step["stiffest_share"])
            if step["kept"]
            else Cell("not counted", tone="quiet"),
        ]
        for step in result["nsi"]
    ]
    columns = ["step", "module", "NSI", "spread", "5 %", "95 %", "stiffest of"]
    lead = (
        "NSI per step, mean and 5–95 % of inputs; grey steps, the first of a stage, do not count."
    )
    surfaces = [Figure(spec) for (spec,) in surface_pictures({result["network"]: result})]
    sections = [
        Section("How stiff is each step?", lead, [Figure(nsi_figure(result["nsi"]), wide=True)]),
        Section(
            "How many inputs, how many steps?",
            "δ(M): share of inputs with a step above M₁ (relative to its stage) and M₂ (NSI "
            "itself). p̂(M): share of steps.",
            [Row(surfaces)],
        ),
        Section("All numbers", "", [Table(columns, rows, names=2)]),
        _notes(result["notes"]),
        provenance_section(result),
    ]
    title = network_title(result)
    return render(Page(title, verdict, chips, sections, "Stiffness of the steps"))


def stripe_page(result: Mapping[str, Any]) -> str:
    """The gates of one network as HTML; `result` is what a stripe.json holds."""
    sites = result["sites"]
    number = len(sites)
    shown = sites[:: max(1, -(-number // _PICTURES))]
    ratios = [stripe_ratio(site) for site in sites]
    values = ("mean", "image_spread", "channel_spread")
    rows = [
        [
            Cell(site["label"]),
            Cell(site["name"]),
            number_cell(site["channels"], "{}"),
            *(number_cell(site[value], "{:.4f}") for value in values),
            number_cell(ratio, "{:.3f}"),
        ]
        for site, ratio in zip(sites, ratios, strict=True)
    ]
    columns = ["block", "gate", "channels", "mean", "spread, images", "spread, channels", "ratio"]
    constant = sum(site["constant"] for site in sites)
    chips = [
        *provenance_chips(result),
        Chip(f"{result['images']} images"),
        Chip(f"{number} gates"),
        Chip(f"{constant} exactly constant", "good" if constant == number else "neutral"),
        Chip(f"{result['seconds']:.1f} s"),
    ]
    left_out = f" {len(shown)} of {number} gates are shown." if len(shown) < number else ""
    pictures = (
        f"Gates, image × channel. Vertical stripes: the channel decides, not the image.{left_out}"
    )
    sections = [
        Section(
            "Is it constant?",
            "Spread of every gate across images, and across channels.",
            [Figure(spread_figure(sites), wide=True)],
        ),
        Section(
            "What do the gates look like?",
            pictures,
            [Row([Figure(gates_figure(site)) for site in shown])],
        ),
    ]
    maps = [Figure(maps_figure(site), wide=True) for site in shown if site["maps"]]
    if maps:
        lead = "Spatial attention of a few images, side by side."
        sections.append(Section("Where does it look?", lead, maps))
    numbers = Section("All numbers", "", [Table(columns, rows, names=2)])
    sections += [numbers, _notes(result["notes"]), provenance_section(result)]
    verdict = stripes_in_words(ratios)
    if is_untrained(result):
        verdict += f" {UNTRAINED}"
    return render(Page(network_title(result), verdict, chips, sections, "Gates over images"))


def _notes(notes: Sequence[str]) -> Section:
    if not notes:
        return Section("Alerts", "", [Text("Nothing to report.", quiet=True)])
    return Section("Alerts", "", [Notes([Chip(note, "warn") for note in notes])])
