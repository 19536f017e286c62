"""The page of the gates of one network."""

from __future__ import annotations

from attnlab.instruments.block_figures import some_of
from attnlab.instruments.different import ENOUGH
from attnlab.instruments.stripe.figures import gates_figure, maps_figure, spread_figure
from attnlab.instruments.stripe.result import ALIKE, StripeResult
from attnlab.page.glossary import words
from attnlab.page.parts import Chip, Figure, Page, Row, Section
from attnlab.results.origin import (
    is_untrained,
    network_title,
    notes_section,
    provenance_chips,
    provenance_section,
)
from attnlab.results.provenance import UNTRAINED

_PICTURES = 24
"""Of how many gates a page shows pictures, from the first to the last."""


def stripe_page(result: StripeResult) -> Page:
    """The page of the gates of one network."""
    verdict = result.verdict
    if is_untrained(result.provenance):
        verdict += f" {UNTRAINED}"
    sections = [
        Section(
            "Is it constant?",
            "Spread of every gate across images, and across channels.",
            [Figure(spread_figure(result.sites), wide=True), words("gate", "ratio", "fold")],
            result.verdict,
            _to_do(result),
        ),
        *_pictures(result),
        Section("All numbers", "", [result.table()]),
        notes_section(result.notes),
        provenance_section(result.provenance),
    ]
    title = network_title(result.network, result.provenance)
    return Page(title, verdict, _chips(result), sections, "Gates over images")


def _chips(result: StripeResult) -> list[Chip]:
    number = len(result.sites)
    constant = sum(site.constant for site in result.sites)
    few = f"only {result.different_images} different images"
    return [
        *provenance_chips(result.provenance),
        Chip(f"{result.images} images"),
        *([] if result.enough_images else [Chip(few, "warn")]),
        Chip(f"{number} gates"),
        Chip(f"{constant} exactly constant", "good" if constant == number else "neutral"),
        Chip(f"{result.seconds:.1f} s"),
    ]


def _pictures(result: StripeResult) -> list[Section]:
    number = len(result.sites)
    shown = some_of(result.sites, _PICTURES)
    left_out = f" {len(shown)} of {number} gates are shown." if len(shown) < number else ""
    sections = [
        Section(
            "What do the gates look like?",
            "Gates, image × channel. Vertical stripes: the channel decides, not the "
            f"image.{left_out}",
            [Row([Figure(gates_figure(site)) for site in shown])],
        )
    ]
    maps = [Figure(maps_figure(site), wide=True) for site in shown if site.maps]
    if maps:
        lead = "Spatial attention of a few images, side by side."
        sections.append(Section("Where does it look?", lead, maps))
    return sections


def _to_do(result: StripeResult) -> str:
    if not result.enough_images:
        return f"Watch at least {ENOUGH} different images before you replace a gate by a constant."
    if all(site.constant for site in result.sites):
        return "Fold the gates away with the command `fold`."
    known = result.ratios()
    if known and known[len(known) // 2] < ALIKE:
        return (
            "A constant may do as well: the command `fold` with `--constants` tries it and says "
            "what it changes."
        )
    return "Keep the gates: a constant in their place would change the network."
