"""The page of a fold: where the gates went, and what that did to the output."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from attnlab.lab.pages.budget_section import WORDS, budget_section
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
from attnlab.page.plot import BLUE, Spec
from attnlab.page.rendering import render
from attnlab.results.origin import is_untrained, provenance_chips, provenance_section
from attnlab.results.provenance import UNTRAINED, read_provenance

_EXACT = 1e-8
"""Relative change in float64 up to which a fold is called exact: the limit of its own check."""


def fold_page(receipt: Mapping[str, Any]) -> str:
    """What folding did, as HTML; `receipt` is what a NAME.fold.json holds."""
    rows = receipt["rows"]
    folded = [row for row in rows if row["into"]]
    sections = []
    if rows:
        parts: list[Part | Folded] = [_table(rows)]
        if folded:
            parts.insert(0, Figure(gate_range_figure(folded)))
        lead = (
            "The range of each gate over its channels, and the parameters that it was multiplied "
            "into. Errors are of the branch at a site, in float64, relative to its largest value."
        )
        sections.append(Section("Where did the gates go?", lead, parts))
    if receipt["curve"]:  # None without a budget
        sections.insert(0, budget_section(receipt))
    kept = [row for row in rows if row["kept"]]
    alerts = [Chip(f"{row['site']} keeps a gate.", "warn", f"{row['kept']}.") for row in kept]
    alerts += [Chip(f"{note[:1].upper()}{note[1:]}.") for note in receipt["notes"]]
    if receipt["compared"]:
        alerts.append(Chip("Compared before and after:", detail=f"{receipt['compared']}."))
    sections.append(
        Section("Alerts", "", [Notes(alerts or [Chip("Nothing to report.", "good")])]),
    )
    sections.append(provenance_section(read_provenance(receipt.get("provenance"))))
    others = {
        key: value for key, value in receipt.items() if key not in ("rows", "provenance", "curve")
    }
    text = json.dumps(others, indent=1, ensure_ascii=False)
    sections.append(Section("Receipt", "", [Code(text)]))
    title = f"{receipt['action'][:1].upper()}{receipt['action'][1:]}"
    verdict = _verdict(receipt)
    if is_untrained(read_provenance(receipt.get("provenance"))):
        verdict += f" {UNTRAINED}"
    return render(Page(title, verdict, _chips(receipt, len(kept)), sections, "Fold"))


def _verdict(receipt: Mapping[str, Any]) -> str:
    rows, exact = receipt["rows"], receipt["float64_change"]
    change = (
        "in float64 the output was not compared"
        if exact is None
        else f"the output changes by {exact:.1e} (relative, in float64)"
    )
    if not rows:
        return f"There was no gate to fold; branches and norms are merged, and {change}."
    gates = f"**{sum(bool(row['into']) for row in rows)} of {len(rows)}** gates are"
    replaced = sum(map(_is_replaced, rows))
    if not replaced:
        return f"{gates} folded away; {change}."
    if receipt["curve"]:
        return (
            f"{gates} folded away, {replaced} of them replaced by constants from data: an "
            f"approximation, whose cost on images held out is **{receipt['measured']:.4f}** "
            f"({WORDS[receipt['curve']['cost']]}). The fold of the constants itself is exact: "
            f"{change}."
        )
    moved = receipt["relative_change"]
    of_means = "was not measured" if moved is None else f"is **{moved:.1e}** (relative)"
    return (
        f"{gates} folded away, {replaced} of them replaced by their mean over data: an "
        f"approximation, whose change of the output {of_means}. The fold of the means itself is "
        f"exact: {change}."
    )


def _is_replaced(row: Mapping[str, Any]) -> bool:
    """Whether the gate was not constant, and its mean was folded."""
    return row["spread"] is not None and bool(row["into"])


def _chips(receipt: Mapping[str, Any], kept: int) -> list[Chip]:
    error = receipt["float64_change"]
    exact = error is not None and error < _EXACT and not any(map(_is_replaced, receipt["rows"]))
    chips = [
        *provenance_chips(read_provenance(receipt.get("provenance"))),
        Chip("exact" if exact else "approximate", "good" if exact else "warn"),
        Chip(f"parameters {receipt['parameters_before']:,} → {receipt['parameters_after']:,}"),
    ]
    if receipt["macs_before"] is not None:
        chips.append(Chip(f"MACs {receipt['macs_before']:,} → {receipt['macs_after']:,}"))
    if receipt["max_change"] is not None:
        chips.append(Chip(f"max |Δ output| {receipt['max_change']:.1e} in its own precision"))
    if kept:
        chips.append(Chip(f"{kept} kept", "warn"))
    return [*chips, Chip(f"{receipt['seconds']:.1f} s")]


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    replaced = any(row["spread"] is not None for row in rows)
    kept = any(row["kept"] for row in rows)
    columns = ["site", "folded into", "gate", "error (float64)"]
    columns += ["spread over data", "predicted change"] if replaced else []
    columns += ["kept because"] if kept else []
    lines = []
    for row in rows:
        gate = f"{row['smallest']:.3g} to {row['largest']:.3g}" if row["into"] else "—"
        undone = (f"1/gate: {name}" for name in row["undone_by"])
        into = ", ".join((*row["into"], *undone))
        cells = [Cell(row["site"]), Cell(into or "—"), Cell(gate)]
        values = ["error", *(("spread", "predicted_change") if replaced else ())]
        cells += [number_cell(row[value], "{:.1e}") for value in values]
        lines.append(cells + ([Cell(row["kept"])] if kept else []))
    return Table(columns, lines, names=2)


def gate_range_figure(rows: Sequence[Mapping[str, Any]]) -> Spec:
    """From the smallest to the largest value of each folded gate, over its channels."""
    names = list(dict.fromkeys(row["site"] for row in rows))
    values = [
        {
            "site": row["site"],
            "low": row["smallest"],
            "high": row["largest"],
            "text": f"{row['site']}: gate {row['smallest']:.3g} to {row['largest']:.3g}",
        }
        for row in rows
    ]
    x = {"type": "quantitative", "title": "gate, over channels", "axis": {"tickCount": 6}}
    return {
        "width": 260,
        "height": {"step": 18},
        "data": {"values": values},
        "mark": {"type": "bar", "height": 8, "cornerRadius": 3, "color": BLUE},
        "encoding": {
            "y": {
                "field": "site",
                "type": "nominal",
                "sort": names,
                "title": None,
                "axis": {"domain": False, "ticks": False, "labelLimit": 220},
            },
            "x": {**x, "field": "low"},
            "x2": {"field": "high"},
            "description": {"field": "text"},
        },
    }
