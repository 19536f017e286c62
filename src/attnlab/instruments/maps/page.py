"""The page of the attention maps of one network, from its JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attnlab.instruments.maps.figures import heads_figure, maps_in_words, mean_maps_figure
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

_PICTURES = 12
"""Of how many layers a page shows the mean maps, from the first to the last."""


def maps_page(result: Mapping[str, Any]) -> str:
    """The attention maps of one network as HTML; `result` is what a maps.json holds."""
    layers = result["layers"]
    heads = sum(len(layer["heads"]) for layer in layers)
    shown = layers[:: max(1, -(-len(layers) // _PICTURES))]
    left_out = (
        f" {len(shown)} of {len(layers)} layers are shown." if len(shown) < len(layers) else ""
    )
    chips = [
        *provenance_chips(read_provenance(result.get("provenance"))),
        Chip(f"{result['inputs']} inputs"),
        Chip(f"{heads} heads"),
        Chip(f"{result['seconds']:.1f} s"),
    ]
    sections = [
        Section(
            "Does the map depend on the input?",
            "Left: how far the maps of single inputs are from the mean map of the head, from 0 "
            "(the same map always) to 1 (no key in common). Right: what changes in the output when "
            "the mean map takes the place of the head's own.",
            [Row([Figure(heads_figure(layers, which)) for which in ("spread", "change")])],
            maps_in_words(result),
            "A head of small spread could have its map stored; what that saves is not measured "
            "here.",
        ),
        Section(
            "What do the mean maps look like?",
            f"Query × key, head by head, each on its own scale.{left_out}",
            [Figure(mean_maps_figure(layer), wide=True) for layer in shown],
        ),
        Section("All numbers", "", [_table(layers)]),
        _alerts(result["notes"]),
        provenance_section(read_provenance(result.get("provenance"))),
    ]
    verdict = maps_in_words(result)
    if is_untrained(read_provenance(result.get("provenance"))):
        verdict += f" {UNTRAINED}"
    return render(
        Page(
            network_title(str(result["network"]), read_provenance(result.get("provenance"))),
            verdict,
            chips,
            sections,
            "Attention maps over data",
        )
    )


def _table(layers: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        [
            Cell(layer["name"]),
            number_cell(place + 1, "{}"),
            number_cell(head["spread"], "{:.3f}"),
            number_cell(head["structure"], "{:.3f}"),
            number_cell(head["change"], "{:.4f}"),
        ]
        for layer in layers
        for place, head in enumerate(layer["heads"])
    ]
    columns = ["layer", "head", "spread over inputs", "mean map, from uniform", "change of output"]
    return Table(columns, rows)


def _alerts(notes: Sequence[str]) -> Section:
    if not notes:
        return Section("Alerts", "", [Text("Nothing to report.", quiet=True)])
    return Section("Alerts", "", [Notes([Chip(note, "warn") for note in notes])])
