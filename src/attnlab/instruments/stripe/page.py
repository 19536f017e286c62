"""The page of the gates of one network, from its JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attnlab.instruments.stripe.figures import (
    gates_figure,
    maps_figure,
    spread_figure,
    stripe_ratio,
    stripes_in_words,
)
from attnlab.page.glossary import words
from attnlab.page.parts import (
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
from attnlab.page.rendering import render
from attnlab.results.origin import (
    is_untrained,
    network_title,
    provenance_chips,
    provenance_section,
)
from attnlab.results.provenance import UNTRAINED, read_provenance

_ALIKE = 0.5
"""Median ratio below which a constant is worth a trial."""
_PICTURES = 24
"""Of how many gates a page shows pictures, from the first to the last."""


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
        *provenance_chips(read_provenance(result.get("provenance"))),
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
            [Figure(spread_figure(sites), wide=True), words("gate", "ratio", "fold")],
            stripes_in_words(ratios),
            _to_do(ratios, constant == number),
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
    sections += [
        numbers,
        _notes(result["notes"]),
        provenance_section(read_provenance(result.get("provenance"))),
    ]
    verdict = stripes_in_words(ratios)
    if is_untrained(read_provenance(result.get("provenance"))):
        verdict += f" {UNTRAINED}"
    return render(
        Page(
            network_title(str(result["network"]), read_provenance(result.get("provenance"))),
            verdict,
            chips,
            sections,
            "Gates over images",
        )
    )


def _to_do(ratios: Sequence[float | None], constant: bool) -> str:
    if constant:
        return "Fold the gates away: `attnlab fold NETWORK -o plain.safetensors`."
    known = [ratio for ratio in ratios if ratio is not None]
    if known and sorted(known)[len(known) // 2] < _ALIKE:
        return (
            "A constant may do as well: `attnlab fold NETWORK --constants --data DATA -o "
            "plain.safetensors` tries it and says what it changes."
        )
    return "Keep the gates: a constant in their place would change the network."


def _notes(notes: Sequence[str]) -> Section:
    if not notes:
        return Section("Alerts", "", [Text("Nothing to report.", quiet=True)])
    return Section("Alerts", "", [Notes([Chip(note, "warn") for note in notes])])
