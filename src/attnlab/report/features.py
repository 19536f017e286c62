"""The part of a study's page about features: stiffness, and where it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from attnlab._extras import needs
from attnlab._ranks import rank_test
from attnlab.plot.stiffness import stiffest_step, surface_pictures
from attnlab.report.block_figures import counts_figure, heat_figure, sites_figure, stiffness_figure
from attnlab.report.parts import Figure, Folded, Heading, Part, Row, Section, Text
from attnlab.report.read import StudyRecord
from attnlab.stored.table import Group

_SHOWN_MODULES = 3


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
    ranked = _against_result(record)
    parts: list[Part | Folded]
    if len(maps) == len(ranked) == 1:  # one data set: both fit side by side
        parts = [Row([*maps, *ranked])]
    else:
        parts = [Row(maps)]
        parts += [Heading(f"TNS against {record.metric.label}"), Row(ranked)] if ranked else []
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
        for found in record.found(group, row.label, "stiffness"):
            for step in found["nsi"]:
                if step["mean"] is not None:
                    by_block.setdefault(step["label"], []).append(step["mean"])
        cells += [(row.label, block, fmean(values)) for block, values in by_block.items()]
    return cells


def rank_sentence(name: str, values: Sequence[float], result: Sequence[float]) -> str:
    """Kendall's τ with the result and its p-value, exact where that can be."""
    with needs("report"):
        from scipy.stats import kendalltau

    number = len(values)
    if number < 3:
        return f"{name}: {number} networks, too few to rank"
    if len(set(values)) == 1 or len(set(result)) == 1:
        return f"{name}: the same for all {number}, so it ranks nothing"
    if len({*values}) == number == len({*result}):
        test = kendalltau(values, result, method="exact")
        tau, p, how = float(test.statistic), float(test.pvalue), "exact p"
    else:
        ranked = rank_test(name, values, result)
        tau, p, how = ranked.kendall, ranked.kendall_p, "exact p" if ranked.exact else "p"
    return f"{name}: Kendall τ = {tau:+.2f}, {how} = {p:.2g}, n = {number}"


def _against_result(record: StudyRecord) -> list[Figure]:
    """TNS against the result per data set, over all of its backbones."""
    figures, metric = [], record.metric
    several = len({group.backbone for group in record.table.groups}) > 1
    for data in dict.fromkeys(group.data for group in record.table.groups):
        points, depths, sizes = [], [], []
        for group in (group for group in record.table.groups if group.data == data):
            for row in group.rows:
                value = row.values.get(metric.name)
                measured = record.found(group, row.label, "stiffness")
                if row.tns is None or value is None or not measured:
                    continue
                label = f"{group.backbone} {row.label}" if several else row.label
                points.append((label, row.tns.mean, value.mean))
                depths.append(float(len(measured[0]["nsi"])))
                sizes.append(float(row.parameters or 0))
        if not points:
            continue
        results = [point[2] for point in points]
        texts = [
            rank_sentence("TNS", [point[1] for point in points], results),
            rank_sentence("Depth", depths, results),
            rank_sentence("Parameters", sizes, results),
        ]
        figures.append(Figure(stiffness_figure(points, metric, data), f"{'. '.join(texts)}."))
    return figures


def _surfaces(record: StudyRecord) -> list[Part | Folded]:
    networks: dict[str, Mapping[str, Any]] = {}
    group = record.table.groups[0]
    for row in group.rows[: _SHOWN_MODULES + 1]:
        every = record.found(group, row.label, "stiffness")
        whole = next((found for found in every if "surface" in found), None)
        if whole is not None:
            networks[row.label] = whole
    if not networks:
        return [
            Text(
                "The surfaces δ(M) and p̂(M) are not on disk: no run has stored them. For one "
                "network, attnlab stiffness draws them.",
                quiet=True,
            )
        ]
    text = (
        f"On {record.name_of(group)}, first seed. δ(M): share of inputs with a step above M₁ "
        f"(relative to its stage) and M₂ (NSI itself); p̂(M): share of steps."
    )
    first = _degrees(next(iter(networks.values())))
    alike = {label: found for label, found in networks.items() if _degrees(found) == first}
    if len(alike) < len(networks):
        others = ", ".join(label for label in networks if label not in alike)
        text += f" Measured on other M and left out: {others}."
    heading = Heading("How many inputs, how many steps are stiff?")
    rows = [Row([Figure(spec) for spec in specs]) for specs in surface_pictures(alike)]
    return [heading, Text(text, quiet=True), *rows]


def _degrees(found: Mapping[str, Any]) -> tuple[Any, Any]:
    return found["relative_degrees"], found["absolute_degrees"]


def where_section(record: StudyRecord) -> Section:
    """Where?"""
    title = "Where?"
    measured = [found for run in record.finished if (found := run.found("stiffness"))]
    if not measured:
        return Section(title, "No run measured stiffness, so no block is known to be stiff.", [])
    counts = stiffest_counts(measured)
    lead = (
        "Which block is the stiffest of most test images (the first of every stage is not "
        "counted), over all runs. If attention acts on stiffness, gates at the few stiff blocks "
        "should do most of the work: the lottery-ticket view."
    )
    parts: list[Part | Folded] = []
    if counts:
        total = sum(number for _, number in counts)
        parts.append(Figure(counts_figure(counts, total), wide=True))
    else:
        text = (
            f"What is stored does not say which block is the stiffest; attnlab study measure "
            f"{record.table.study} --only stiffness measures it."
        )
        parts.append(Text(text, quiet=True))
    several = False
    for group in record.table.groups:
        points = gate_counts(record, group)
        if points:
            several = True
            parts += [Heading(record.name_of(group)), Figure(sites_figure(points, record.metric))]
    if not several:
        text = (
            "No module is there once with more and once with fewer gates, so this study cannot "
            'tell whether fewer would do. Add where = ["all", "stages:1", "every:3"] to its file '
            "to ask."
        )
        parts.append(Text(text, quiet=True))
    return Section(title, lead, parts)


def stiffest_counts(measured: Sequence[Mapping[str, Any]]) -> list[tuple[str, int]]:
    """(block, number of networks of which it is the stiffest), in the order of the blocks; empty
    where none says it."""
    stiffest = Counter(step["label"] for found in measured if (step := stiffest_step(found)))
    blocks = dict.fromkeys(step["label"] for found in measured for step in found["nsi"])
    return [(block, stiffest[block]) for block in blocks] if stiffest else []


def gate_counts(
    record: StudyRecord, group: Group
) -> list[tuple[str, int, float, float | None, float | None]]:
    """(row, number of gates, Δ, low, high) of the modules that are there with several numbers."""
    modules: dict[str, list[tuple[str, int, float, float | None, float | None]]] = {}
    for row in group.rows:
        runs, compared = record.of(group, row.label), row.comparison
        gates = runs[0].found("gates").get("gates") if runs else None
        if compared is None or gates is None:
            continue
        point = (row.label, len(gates), compared.difference.mean, compared.low, compared.high)
        modules.setdefault(runs[0].entry.attention, []).append(point)
    varied = (points for points in modules.values() if len({p[1] for p in points}) > 1)
    return [point for points in varied for point in points]
