"""Smaller pages, of the same parts: one measurement of one network each."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
)

if TYPE_CHECKING:
    from attnlab.stripe import StripeResult
    from attnlab.trajectory.result import StiffnessResult

_PICTURES = 24
"""Of how many gates a page shows pictures, from the first to the last."""


def stiffness_page(result: StiffnessResult) -> str:
    """The stiffness of one network as HTML."""
    from attnlab.report.features import stiffness_surfaces

    stiffest = result.stiffest
    verdict = f"TNS **{result.tns:.4g}** over {result.inputs} inputs."
    if stiffest is not None:
        verdict += (
            f" Block **{stiffest.label}** ({stiffest.name}) is the stiffest of "
            f"{100 * stiffest.share:.0f} % of them."
        )
    chips = [
        Chip(f"{result.inputs} inputs"),
        Chip(f"convention {result.convention}"),
        Chip(result.plan),
        Chip(f"{result.parameters / 1e6:.2f} M parameters"),
        Chip(f"{result.seconds:.1f} s"),
    ]
    if result.skipped:
        chips.append(Chip(f"{result.skipped} inputs skipped", "warn"))
    rows = [
        [
            Cell(step.label),
            Cell(step.name),
            *(
                Cell(f"{value:.3f}", order=value)
                for value in (step.mean, step.spread, step.quantile_05, step.quantile_95)
            ),
            Cell(f"{100 * step.stiffest_share:.0f} %", order=step.stiffest_share)
            if step.kept
            else Cell("not counted", tone="quiet"),
        ]
        for step in result.nsi
    ]
    columns = ["step", "module", "NSI", "spread", "5 %", "95 %", "stiffest of"]
    lead = (
        "NSI per step, mean and 5–95 % of inputs; grey steps, the first of a stage, do not count."
    )
    sections = [
        Section(
            "How stiff is each step?", lead, [Figure(_untitled(result.figures()["nsi"]), wide=True)]
        ),
        Section(
            "How many inputs, how many steps?",
            "δ(M): share of inputs with a step above M₁ (relative to its stage) and M₂ (NSI "
            "itself). p̂(M): share of steps.",
            [Row([figure for (figure,) in stiffness_surfaces({result.network: result})])],
        ),
        Section("All numbers", "", [Table(columns, rows, names=2)]),
        _notes(result.notes),
    ]
    return render(Page(result.network, verdict, chips, sections, "Stiffness of the steps"))


def stripe_page(result: StripeResult) -> str:
    """The gates of one network as HTML."""
    from attnlab.stripe.figures import gates_figure, maps_figure, spread_figure

    number = len(result.sites)
    step = max(1, -(-number // _PICTURES))
    shown = result.sites[::step]
    rows = [
        [
            Cell(site.label),
            Cell(site.name),
            Cell(str(site.channels), order=site.channels),
            *(
                Cell(f"{value:.4f}", order=value)
                for value in (site.mean, site.image_spread, site.channel_spread)
            ),
            Cell("—") if site.ratio is None else Cell(f"{site.ratio:.3f}", order=site.ratio),
        ]
        for site in result.sites
    ]
    columns = ["block", "gate", "channels", "mean", "spread, images", "spread, channels", "ratio"]
    constant = sum(site.constant for site in result.sites)
    chips = [
        Chip(f"{result.images} images"),
        Chip(f"{number} gates"),
        Chip(f"{constant} exactly constant", "good" if constant == number else "neutral"),
        Chip(f"{result.seconds:.1f} s"),
    ]
    left_out = f" {len(shown)} of {number} gates are shown." if len(shown) < number else ""
    pictures = (
        f"Gates, image × channel. Vertical stripes: the channel decides, not the image.{left_out}"
    )
    sections = [
        Section(
            "Is it constant?",
            "Spread of every gate across images, and across channels.",
            [Figure(spread_figure(result.sites), wide=True)],
        ),
        Section(
            "What do the gates look like?",
            pictures,
            [Row([Figure(gates_figure(s)) for s in shown])],
        ),
    ]
    maps = [Figure(maps_figure(site), wide=True) for site in shown if site.maps]
    if maps:
        lead = "Spatial attention of a few images, side by side."
        sections.append(Section("Where does it look?", lead, maps))
    sections += [Section("All numbers", "", [Table(columns, rows, names=2)]), _notes(result.notes)]
    return render(Page(result.network, result.verdict, chips, sections, "Gates over images"))


def _notes(notes: tuple[str, ...]) -> Section:
    if not notes:
        return Section("Alerts", "", [Text("Nothing to report.", quiet=True)])
    return Section("Alerts", "", [Notes([Chip(note, "warn") for note in notes])])


def _untitled(spec: dict) -> dict:
    return {key: value for key, value in spec.items() if key != "title"}
