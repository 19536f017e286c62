"""The page of networks under noise."""

from __future__ import annotations

from attnlab.instruments.noise.figures import noise_figure
from attnlab.instruments.noise.result import NoiseCurve, NoiseResult
from attnlab.page.parts import Chip, Figure, Page, Section, Text
from attnlab.results.origin import (
    is_untrained,
    network_title,
    notes_section,
    provenance_chips,
    provenance_section,
)
from attnlab.results.provenance import UNTRAINED

_KINDS = {
    "random": "x̂ ← (1 + σ ε₁) x̂ + σ ε₂ in every norm, ε drawn anew in every forward",
    "constant": "x̂ ← a x̂ + b in every norm. It is not noise for a network that was trained with "
    "it: the affine absorbs it",
    "batch": "batch statistics of n images in place of the running ones, in a random order",
}


def noise_page(result: NoiseResult) -> Page:
    """Show how much each network loses under one kind of noise."""
    chips = [
        *provenance_chips(result.provenance),
        Chip(f"{result.images} test images"),
        Chip(f"{result.draws} draw{'s' * (result.draws != 1)}"),
        Chip(f"seed {result.seed}"),
        Chip(f"{result.seconds:.1f} s"),
    ]
    lead = f"{_KINDS[result.kind]}. "
    lead += (
        "Dashed: without noise."
        if result.draws == 1
        else "Mean over draws with the 95 % interval of that mean on these images; dashed: without "
        "noise."
    )
    limits = (
        "The interval is over draws of the noise, for these networks. It says nothing of other "
        "seeds of training: compare gates in a study."
    )
    verdict = result.in_words("**{:.2f} → {:.2f}**")
    if is_untrained(result.provenance):
        verdict += f" {UNTRAINED}"
    sections = [
        Section("How much is lost?", lead, [Figure(noise_figure(result), wide=True)]),
        Section("All numbers", "", [result.table()]),
        Section("What it does not say", "", [Text(limits)]),
        notes_section(result.notes),
        *_origins(result),
    ]
    title = ", ".join(network_title(c.network, result.provenance) for c in result.networks)
    return Page(title, verdict, chips, sections, "Noise in the norms")


def _origins(result: NoiseResult) -> list[Section]:
    if len(result.networks) == 1:
        return [provenance_section(result.provenance)]
    return [_origin(curve) for curve in result.networks]


def _origin(curve: NoiseCurve) -> Section:
    section = provenance_section(curve.origin)
    return Section(
        f"Where does {curve.network} come from?", "", section.parts, section.answer, section.to_do
    )
