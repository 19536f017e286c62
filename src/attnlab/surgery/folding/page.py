"""The page of a fold: where the gates went, and what that did to the output."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from attnlab.page.parts import (
    Cell,
    Chip,
    Code,
    Figure,
    Folded,
    Notes,
    Page,
    Part,
    Section,
    Table,
    number_cell,
)
from attnlab.results.origin import as_sentence, is_untrained, provenance_chips, provenance_section
from attnlab.results.provenance import UNTRAINED
from attnlab.surgery.folding.curve import Curve
from attnlab.surgery.folding.figures import curve_figure, gate_range_figure
from attnlab.surgery.folding.receipt import FoldReceipt

_EXACT = 1e-8
"""Relative change in float64 up to which a fold is called exact: the limit of its own check."""
_ELSEWHERE = ("rows", "provenance", "curve", "values")
"""Fields that the page shows in sections of their own, or that belong to a study's page."""


def fold_page(receipt: FoldReceipt) -> Page:
    """Show what folding did."""
    sections = [] if receipt.curve is None else [_cost_section(receipt, receipt.curve)]
    if receipt.rows:
        sections.append(_gates_section(receipt))
    sections += [_alerts(receipt), provenance_section(receipt.provenance), _details(receipt)]
    verdict = receipt.verdict
    if is_untrained(receipt.provenance):
        verdict += f" {UNTRAINED}"
    return Page(receipt.title, verdict, _chips(receipt), sections, "Fold")


def _gates_section(receipt: FoldReceipt) -> Section:
    # The page has the caption as its title.
    parts: list[Part | Folded] = [replace(receipt.table(), caption="")]
    folded = [row for row in receipt.rows if row.into]
    if folded:
        parts.insert(0, Figure(gate_range_figure(folded)))
    lead = (
        "The range of each gate over its channels, and the parameters that it was multiplied into. "
        "Errors are of the branch at a site, in float64, relative to its largest value."
    )
    return Section("Where did the gates go?", lead, parts)


def _alerts(receipt: FoldReceipt) -> Section:
    alerts = [Chip(f"{row.site} keeps a gate.", "warn", f"{row.kept}.") for row in receipt.kept]
    alerts += [Chip(as_sentence(note)) for note in receipt.notes]
    if receipt.compared:
        alerts.append(Chip("Compared before and after:", detail=f"{receipt.compared}."))
    return Section("Alerts", "", [Notes(alerts or [Chip("Nothing to report.", "good")])])


def _details(receipt: FoldReceipt) -> Section:
    others = {key: value for key, value in asdict(receipt).items() if key not in _ELSEWHERE}
    text = json.dumps({"format": receipt.FORMAT, **others}, indent=1, ensure_ascii=False)
    return Section("Receipt", "", [Folded("Every field, as in the JSON file", [Code(text)])])


def _chips(receipt: FoldReceipt) -> list[Chip]:
    error, kept = receipt.float64_change, len(receipt.kept)
    exact = error is not None and error < _EXACT and not receipt.replaced
    chips = [
        *provenance_chips(receipt.provenance),
        Chip("exact" if exact else "approximate", "good" if exact else "warn"),
        Chip(f"parameters {receipt.parameters_before:,} → {receipt.parameters_after:,}"),
    ]
    if receipt.macs_before is not None:
        chips.append(Chip(f"MACs {receipt.macs_before:,} → {receipt.macs_after:,}"))
    if receipt.max_change is not None:
        chips.append(Chip(f"max |Δ output| {receipt.max_change:.1e} in its own precision"))
    if kept:
        chips.append(Chip(f"{kept} kept", "warn"))
    return [*chips, Chip(f"{receipt.seconds:.1f} s")]


def _cost_section(receipt: FoldReceipt, curve: Curve) -> Section:
    """What it costs to make gates constant, one after the other."""
    gone = sum(bool(row.into) for row in receipt.rows)
    lead = (
        f"Gates in the order in which they are made constant. Predicted on the {curve.choosing} "
        f"images that chose, measured on {curve.held_out} that did not. The budget was "
        f"**{curve.budget}**, and {gone} of {len(receipt.rows)} gates went: predicted "
        f"{receipt.predicted:.4f}, measured **{receipt.measured:.4f}**."
    )
    if receipt.repair is not None:
        lead += (
            f" Before the repair ({receipt.repair.epochs} epochs in which the original teaches the "
            f"folded network) it was {receipt.measured_before_repair:.4f}."
        )
    lead += _accuracy(receipt)
    return Section("What does it cost?", lead, [Figure(curve_figure(curve)), _points(curve)])


def _accuracy(receipt: FoldReceipt) -> str:
    before, after = receipt.accuracy_before, receipt.accuracy_after
    if before is None or after is None or receipt.accuracy_error is None:
        return ""
    # 1.96 standard errors are a 95 % interval; in points, so times 100.
    fell, error = 100 * (after - before), 196 * receipt.accuracy_error
    return (
        f" Accuracy on the images held out: {before:.2%} before, **{after:.2%}** after "
        f"({fell:+.2f} ± {error:.2f} points, 95 %, image by image)."
    )


def _points(curve: Curve) -> Table:
    accuracy = any(point.accuracy is not None for point in curve.points)
    columns = ["gate made constant", "how many", "predicted", "up to (95 %)", "held out"]
    rows = [
        [
            Cell(point.site),
            number_cell(number, "{:d}"),
            *(number_cell(v, "{:.4f}") for v in (point.predicted, point.bound, point.measured)),
            *([number_cell(point.accuracy, "{:.2%}")] if accuracy else []),
        ]
        for number, point in enumerate(curve.points, 1)
    ]
    return Table(columns + (["accuracy held out"] if accuracy else []), rows, names=1)
