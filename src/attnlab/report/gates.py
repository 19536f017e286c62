"""The part of a study's page about gates: are they constant?"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np

from attnlab.plot.gates import difference_figure, stripe_figure, stripe_ratio
from attnlab.report.block_figures import heat_figure, natural_order
from attnlab.report.parts import Figure, Folded, Heading, Part, Row, Section, Text
from attnlab.report.read import RunRecord, StudyRecord
from attnlab.stored.table import Group

_SHOWN_MODULES = 3
_SHOWN_BLOCKS = 3


def gates_section(record: StudyRecord) -> Section:
    """Is it constant?"""
    maps = []
    for group in record.table.groups:
        cells = _ratio_cells(record, group)
        if cells:
            name = record.name_of(group)
            figure = heat_figure(cells, legend="ratio", title=name, limit=1.0)
            maps.append(Figure(figure, wide=True))
    if not maps:
        missing = "No finished run has gates whose values were recorded."
        return Section("Is it constant?", missing, [])
    parts: list[Part | Folded] = [Row(maps), *_pictures(record)]
    lead = (
        "The stripe observation: spread of a gate across test images, relative to its spread "
        "across channels. Near 0 the gate is the same for every image, so a constant could take "
        "its place and fold away; 1 and above, it depends on the image as much as on the channel. "
        "An empty field: no gate."
    )
    return Section("Is it constant?", lead, parts)


def _ratio_cells(record: StudyRecord, group: Group) -> list[tuple[str, str, float]]:
    cells = []
    for row in group.rows:
        by_block: dict[str, list[float]] = {}
        for found in record.found(group, row.label, "gates"):
            for gate in found["gates"]:
                ratio = stripe_ratio(gate)
                if ratio is not None:
                    by_block.setdefault(gate["label"], []).append(ratio)
        cells += [(row.label, block, fmean(values)) for block, values in by_block.items()]
    return cells


def _pictures(record: StudyRecord) -> list[Part | Folded]:
    group = record.table.groups[0]
    gated = [row.label for row in group.rows if record.found(group, row.label, "gates")]
    images: list[Part] = []
    epochs: list[Part] = []
    for label in gated[:_SHOWN_MODULES]:
        run = record.of(group, label)[0]
        figures = _stripes(run)
        if figures:
            images += [
                Heading(f"{label} on {record.name_of(group)}, seed {run.entry.seed}"),
                Row(figures),
            ]
        moves = _history(run)
        if moves:
            epochs += [Heading(f"{label}: change of the gate from epoch to epoch"), Row(moves)]
    if not images:
        text = (
            "Gates of single images were not recorded. For one run: attnlab stripe RUN --out DIR."
        )
        images = [Text(text, quiet=True)]
    if not epochs:
        text = (
            "Gates were not recorded epoch by epoch, so there is no picture of when they settle: "
            "set every_epoch = true in the study's [measure]."
        )
        epochs = [Text(text, quiet=True)]
    return [*images, *epochs]


def _stripes(run: RunRecord) -> list[Figure]:
    tensors = run.stored.gates
    names = [key.removesuffix(".sample") for key in tensors if key.endswith(".sample")]
    return [_stripe(name, tensors[f"{name}.sample"]) for name in _spaced(names)]


def _stripe(name: str, values: np.ndarray) -> Figure:
    description = (
        f"Gate {name} of {values.shape[0]} images × {values.shape[1]} channels, from "
        f"{values.min():.3g} to {values.max():.3g}; spread across images "
        f"{values.std(0).mean():.2g}, across channels {values.mean(0).std():.2g}"
    )
    return Figure(stripe_figure(values, name, description))


def _history(run: RunRecord) -> list[Figure]:
    """How the mean gates moved from epoch to epoch."""
    records = [record for record in run.stored.history if "gates" in record]
    if len(records) < 2:
        return []
    epochs = [record["epoch"] for record in records]
    figures = []
    for name in _spaced(list(records[0]["gates"])):
        moved = np.abs(np.diff([record["gates"][name] for record in records], axis=0))
        figures.append(Figure(difference_figure(name, epochs, moved)))
    return figures


def _spaced(names: Sequence[str]) -> list[str]:
    """A few of `names`, from the first to the last."""
    names = sorted(names, key=natural_order)
    if len(names) <= _SHOWN_BLOCKS:
        return list(names)
    return [names[round(i * (len(names) - 1) / (_SHOWN_BLOCKS - 1))] for i in range(_SHOWN_BLOCKS)]
