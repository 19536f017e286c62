"""The part of a study's page about features: stiffness, and where it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from attnlab.plot.raster import raster_figure
from attnlab.report.block_figures import counts_figure, heat_figure, sites_figure, stiffness_figure
from attnlab.report.parts import Figure, Folded, Heading, Part, Row, Section, Text
from attnlab.report.read import StudyRecord
from attnlab.study.table import Group

if TYPE_CHECKING:
    from attnlab.trajectory.result import StiffnessResult

_SHOWN_MODULES = 3
_NEARLY_ZERO = 0.005
"""Shares up to which a surface may be cut off."""


def stiffness_section(record: StudyRecord) -> Section:
    """What does it do to the features?"""
    maps = []
    for group in record.table.groups:
        cells = nsi_cells(record, group)
        if cells:
            figure = heat_figure(cells, legend="NSI", title=record.name_of(group))
            maps.append(Figure(figure, wide=True))
    if not maps:
        missing = "No run measured stiffness: either none is finished or measure.images is 0."
        return Section("What does it do to the features?", missing, [])
    ranked = _against_accuracy(record)
    parts: list[Part | Folded]
    if len(maps) == len(ranked) == 1:  # one data set: both fit side by side
        parts = [Row([*maps, *ranked])]
    else:
        parts = [Row(maps)]
        parts += [Heading("TNS against accuracy"), Row(ranked)] if ranked else []
    parts += _surfaces(record)
    lead = (
        "NSI of each residual block: how far a step moves the features, relative to their length "
        "(mean over test images and seeds). TNS sums up how stiff a network is. It grows with "
        "depth before any training, so depth and size are ranked beside it; and it depends on the "
        "convention of NSI: see the alerts."
    )
    return Section("What does it do to the features?", lead, parts)


def nsi_cells(record: StudyRecord, group: Group) -> list[tuple[str, str, float]]:
    """(module, block, NSI), mean over seeds."""
    cells = []
    for row in group.rows:
        by_block: dict[str, list[float]] = {}
        for result in record.results(group, row.label):
            for step in result.nsi:
                by_block.setdefault(step.label, []).append(step.mean)
        cells += [(row.label, block, fmean(values)) for block, values in by_block.items()]
    return cells


def rank_sentence(name: str, values: Sequence[float], accuracy: Sequence[float]) -> str:
    """Kendall's τ with accuracy and its p-value, exact where that can be."""
    from scipy.stats import kendalltau

    from attnlab.trajectory.compare import rank_test

    number = len(values)
    if number < 3:
        return f"{name}: {number} networks, too few to rank"
    if len(set(values)) == 1 or len(set(accuracy)) == 1:
        return f"{name}: the same for all {number}, so it ranks nothing"
    if len({*values}) == number == len({*accuracy}):
        test = kendalltau(values, accuracy, method="exact")
        tau, p, how = float(test.statistic), float(test.pvalue), "exact p"
    else:
        ranked = rank_test(name, values, accuracy)
        tau, p, how = ranked.kendall, ranked.kendall_p, "exact p" if ranked.exact else "p"
    return f"{name}: Kendall τ = {tau:+.2f}, {how} = {p:.2g}, n = {number}"


def _against_accuracy(record: StudyRecord) -> list[Figure]:
    """TNS against accuracy per data set, over all of its backbones."""
    found = []
    several = len({group.backbone for group in record.table.groups}) > 1
    for data in dict.fromkeys(group.data for group in record.table.groups):
        points, depths, sizes = [], [], []
        for group in (group for group in record.table.groups if group.data == data):
            for row in group.rows:
                if row.tns is None or row.top1 is None:
                    continue
                label = f"{group.backbone} {row.label}" if several else row.label
                points.append((label, row.tns.mean, row.top1.mean))
                depths.append(float(len(record.results(group, row.label)[0].nsi)))
                sizes.append(float(row.parameters or 0))
        if not points:
            continue
        accuracy = [point[2] for point in points]
        texts = [
            rank_sentence("TNS", [point[1] for point in points], accuracy),
            rank_sentence("Depth", depths, accuracy),
            rank_sentence("Parameters", sizes, accuracy),
        ]
        found.append(Figure(stiffness_figure(points, data), f"{'. '.join(texts)}."))
    return found


def _surfaces(record: StudyRecord) -> list[Part | Folded]:
    from attnlab.trajectory.result import StiffnessResult

    found: dict[str, StiffnessResult] = {}
    for group in record.table.groups[:1]:
        for row in group.rows[: _SHOWN_MODULES + 1]:
            files = [run.directory / "stiffness.json" for run in record.of(group, row.label)]
            file = next((file for file in files if file.is_file()), None)
            if file is not None:
                found[row.label] = StiffnessResult.load(file)
    if not found:
        return [
            Text(
                "The surfaces δ(M) and p̂(M) are not on disk: no run has a stiffness.json. For one "
                "network, attnlab stiffness draws them.",
                quiet=True,
            )
        ]
    text = (
        f"On {record.name_of(record.table.groups[0])}, first seed. δ(M): share of inputs with a "
        f"step above M₁ (relative to its stage) and M₂ (NSI itself); p̂(M): share of steps."
    )
    heading = Heading("How many inputs, how many steps are stiff?")
    return [heading, Text(text, quiet=True), *map(Row, stiffness_surfaces(found))]


def stiffness_surfaces(found: Mapping[str, StiffnessResult]) -> list[list[Figure]]:
    """δ(M) and then p̂(M) of some networks as small pictures, over the same M and colours."""
    kinds = {
        "δ(M)": {label: np.array(result.surface) for label, result in found.items()},
        "p̂(M)": {label: np.array(result.proportion) for label, result in found.items()},
    }
    first = next(iter(found.values()))
    wide, high = _extent([values for kind in kinds.values() for values in kind.values()])
    # A field of the picture reaches from its own M to the next.
    x_end = first.relative_degrees[min(wide, len(first.relative_degrees) - 1)]
    y_end = first.absolute_degrees[min(high, len(first.absolute_degrees) - 1)]
    return [
        [
            Figure(
                raster_figure(
                    values[:wide, :high].T,
                    description=f"{name} of {label}: {values[0, 0]:.3g} at M = 0, TNS "
                    f"{found[label].tns:.4g}",
                    x=("M₁", 0.0, x_end),
                    y=("M₂", 0.0, y_end),
                    legend=name,
                    low=0.0,
                    high=max(float(surface.max()) for surface in surfaces.values()),
                    title=label,
                    size=(130, 130),
                    y_from_bottom=True,
                )
            )
            for label, values in surfaces.items()
        ]
        for name, surfaces in kinds.items()
    ]


def _extent(surfaces: Sequence[np.ndarray]) -> tuple[int, int]:
    """How many degrees M₁ and M₂ show all that is not nearly zero, and one more."""
    seen = np.any([values > _NEARLY_ZERO for values in surfaces], axis=0)
    wide, high = (int(np.flatnonzero(seen.any(axis)).max(initial=0)) + 2 for axis in (1, 0))
    return min(wide, seen.shape[0]), min(high, seen.shape[1])


def where_section(record: StudyRecord) -> Section:
    """Where?"""
    from attnlab.trajectory.result import StiffnessResult

    title = "Where?"
    files = [run.directory / "stiffness.json" for run in record.finished]
    results = [StiffnessResult.load(file) for file in files if file.is_file()]
    if not results:
        return Section(title, "No run measured stiffness, so no block is known to be stiff.", [])
    counts = stiffest_counts(results)
    lead = (
        "Which block is the stiffest of most test images (the first of every stage is not "
        "counted), over all runs. If attention acts on stiffness, gates at the few stiff blocks "
        "should do most of the work: the lottery-ticket view."
    )
    parts: list[Part | Folded] = [Figure(counts_figure(counts, len(results)), wide=True)]
    several = False
    for group in record.table.groups:
        points = gate_counts(record, group)
        if points:
            several = True
            parts += [Heading(record.name_of(group)), Figure(sites_figure(points))]
    if not several:
        text = (
            "No module is there once with more and once with fewer gates, so this study cannot "
            'tell whether fewer would do. Add where = ["all", "stages:1", "every:3"] to its file '
            "to ask."
        )
        parts.append(Text(text, quiet=True))
    return Section(title, lead, parts)


def stiffest_counts(results: Sequence[StiffnessResult]) -> list[tuple[str, int]]:
    """(block, number of runs of which it is the stiffest), in the order of the blocks."""
    counts: Counter[str] = Counter(step.label for result in results for step in result.nsi)
    stiffest = Counter(result.stiffest.label for result in results if result.stiffest)
    return [(block, stiffest[block]) for block in counts]


def gate_counts(
    record: StudyRecord, group: Group
) -> list[tuple[str, int, float, float | None, float | None]]:
    """(row, number of gates, Δ, low, high) of the modules that are there with several numbers."""
    modules: dict[str, list[tuple[str, int, float, float | None, float | None]]] = {}
    for row in group.rows:
        runs = record.of(group, row.label)
        if row.comparison is None or not runs or runs[0].result is None:
            continue
        difference = row.comparison.difference
        gates = sum(step.gated for step in runs[0].result.nsi)
        point = (row.label, gates, difference.mean, difference.low, difference.high)
        modules.setdefault(runs[0].planned.config.attention, []).append(point)
    varied = (points for points in modules.values() if len({p[1] for p in points}) > 1)
    return [point for points in varied for point in points]
