"""The page of networks under noise, from a noise.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnlab.instruments.noise.figures import noise_figure
from attnlab.page.parts import Cell, Chip, Figure, Page, Section, Table, Text, number_cell
from attnlab.page.rendering import render

_KINDS = {
    "random": "x̂ ← (1 + σ ε₁) x̂ + σ ε₂ in every norm, ε drawn anew in every forward",
    "constant": "x̂ ← a x̂ + b in every norm. It is no noise for a network that was trained with it: "
    "the affine absorbs it",
    "batch": "batch statistics of n images in place of the running ones, in a random order",
}


def noise_page(result: Mapping[str, Any]) -> str:
    """Networks under one kind of noise as HTML; `result` is what a noise.json holds."""
    metric, curves = result["metric"], result["networks"]
    draws = result["draws"]
    chips = [
        Chip(f"{result['images']} test images"),
        Chip(f"{draws} draw{'s' * (draws != 1)}"),
        Chip(f"seed {result['seed']}"),
        Chip(f"{result['seconds']:.1f} s"),
    ]
    rows = []
    for curve in curves:
        rows.append([Cell(curve["network"]), Cell("none"), number_cell(curve["clean"], "{:.2f}")])
        rows[-1] += [Cell("—"), Cell("—"), Cell("—")]
        rows += [_row(curve, point) for point in curve["points"]]
    unit = f" ({metric['unit']})" if metric["unit"] else ""
    columns = ["network", "noise", f"{metric['label']}{unit}", "low", "high", "change"]
    lead = (
        f"{_KINDS[result['kind']]}. Mean over draws with the 95 % interval of that mean on these "
        f"images; dashed: without noise."
    )
    if draws == 1:
        lead = f"{_KINDS[result['kind']]}. Dashed: without noise."
    sections = [
        Section("How much is lost?", lead, [Figure(noise_figure(result), wide=True)]),
        Section("All numbers", "", [Table(columns, rows, names=2)]),
        Section(
            "What it does not say",
            "",
            [
                Text(
                    "The interval is over draws of the noise, for these networks. It says nothing "
                    "of other seeds of training: compare gates in a study."
                )
            ],
        ),
    ]
    title = ", ".join(curve["network"] for curve in curves)
    return render(Page(title, _verdict(result), chips, sections, "Noise in the norms"))


def _row(curve: Mapping[str, Any], point: Mapping[str, Any]) -> list[Cell]:
    values = (point["mean"], point["low"], point["high"])
    change = point["mean"] - curve["clean"]
    return [
        Cell(curve["network"]),
        Cell(point["label"]),
        *(number_cell(value, "{:.2f}") for value in values),
        number_cell(change, "{:+.2f}"),
    ]


def _verdict(result: Mapping[str, Any]) -> str:
    """The strongest noise, in a sentence per network."""
    said = []
    for curve in result["networks"]:
        last = curve["points"][-1]
        said.append(
            f"{curve['network']}: **{curve['clean']:.2f} → {last['mean']:.2f}** under "
            f"{last['label']}"
        )
    return f"{result['metric']['label']} of {'; '.join(said)}."
