"""The page of the attention maps of one network."""

from __future__ import annotations

from attnlab.instruments.block_figures import some_of
from attnlab.instruments.maps.figures import heads_figure, mean_maps_figure
from attnlab.instruments.maps.result import LayerMaps, MapsResult
from attnlab.page.parts import Chip, Figure, Page, Row, Section
from attnlab.results.origin import (
    is_untrained,
    network_title,
    notes_section,
    provenance_chips,
    provenance_section,
)
from attnlab.results.provenance import UNTRAINED

_PICTURES = 12
"""The number of layers whose mean maps a page shows, from the first to the last."""


def maps_page(result: MapsResult) -> Page:
    """The page of the attention maps of one network."""
    number = len(result.layers)
    shown = some_of(result.layers, _PICTURES)
    left_out = f" {len(shown)} of {number} layers are shown." if len(shown) < number else ""
    chips = [
        *provenance_chips(result.provenance),
        Chip(f"{result.inputs} inputs"),
        Chip(f"{len(result.heads)} heads"),
        Chip(f"{result.seconds:.1f} s"),
    ]
    spread, change = (heads_figure(result.layers, which) for which in ("spread", "change"))
    sections = [
        Section(
            "Does the map depend on the input?",
            "First: how far the maps of single inputs are from the mean map of the head, from 0 "
            "(the same map always) to 1 (no key in common). Second: what changes in the output "
            "when the mean map takes the place of the head's own.",
            [Row([Figure(spread), Figure(change)])],
            "",
            "A head of small spread could have its map stored; what that saves is not measured "
            "here.",
        ),
        Section(
            "What do the mean maps look like?",
            f"Query × key, head by head, each as a share of its largest value.{left_out}",
            [Row([_mean_maps(layer) for layer in shown])],
        ),
        Section("All numbers", "", [result.table()]),
        notes_section(result.notes),
        provenance_section(result.provenance),
    ]
    untrained = f" {UNTRAINED}" if is_untrained(result.provenance) else ""
    title = network_title(result.network, result.provenance)
    return Page(title, result.verdict + untrained, chips, sections, "Attention maps over data")


def _mean_maps(layer: LayerMaps) -> Figure:
    # A mosaic of many heads is as wide as the page, and scrolls on a narrow screen.
    return Figure(mean_maps_figure(layer), wide=len(layer.heads) > 3)
