"""The part of a study's page about features: stiffness, and where it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import isfinite
from statistics import fmean

from attnlab._ranks import kendall_without_ties, rank_test
from attnlab.instruments.block_figures import (
    block_figure,
    counts_figure,
    heat_figure,
    stiffness_figure,
)
from attnlab.instruments.place.section import placement_answer, placement_parts
from attnlab.instruments.stiffness.result import StiffnessResult
from attnlab.instruments.stiffness.surfaces import surface_parts
from attnlab.page.glossary import words
from attnlab.page.parts import Figure, Folded, Heading, Part, Row, Section, Text
from attnlab.page.plot import BESIDE
from attnlab.results.record import StudyRecord
from attnlab.results.table import Group


def stiffness_section(record: StudyRecord) -> Section:
    """What does it do to the features?"""
    title = "What does it do to the features?"
    maps = []
    for group in record.table.groups:
        cells = nsi_cells(record, group)
        if cells:
            # Beside TNS, or beside the map of another group.
            name = record.name_of(group)
            maps.append(block_figure(heat_figure(cells, legend="NSI", title=name, width=BESIDE)))
    if not maps:
        missing = "No run measured stiffness: either none is finished or measure.images is 0."
        return Section(title, "", [], missing)
    ranked = _against_result(record)
    parts: list[Part | Folded]
    if len(maps) == len(ranked) == 1:  # one data set: both fit side by side
        parts = [Row([*maps, *ranked])]
    else:
        parts = [Row(maps)]
        parts += [Heading(f"TNS against {record.metric.label}"), Row(ranked)] if ranked else []
    parts += surface_parts(record)
    parts.append(words("step", "NSI", "TNS", "δ(M)", "p̂(M)", "M₁", "M₂"))
    lead = (
        "The map shows NSI: how far each block moves the features, relative to their length (mean "
        "over test inputs and seeds). TNS sums up how uneven the steps are. It grows with depth "
        "before any training, so depth and size are ranked beside it; and it depends on the "
        "convention of NSI: see the alerts."
    )
    to_do = "Read TNS as a description, not as a grade: choose a module by its result above."
    return Section(title, lead, parts, _stiffness_answer(record), to_do)


def _stiffness_answer(record: StudyRecord) -> str:
    """Say of the first group that has a plain network whose steps are more even and whose are
    not."""
    for group in record.table.groups:
        plain = group.plain
        if plain is None or plain.tns is None:
            continue
        means = {row.label: row.tns.mean for row in group.rows if row.tns and not row.plain}
        on = f" on {record.name_of(group)}" if len(record.table.groups) > 1 else ""
        if means:
            return against_plain(means, plain.tns.mean, on)
        break
    return "How even the steps of the networks are, and where they are large."


def against_plain(means: dict[str, float], plain: float, on: str = "") -> str:
    """Say whose steps are more even than the plain network's; of TNS that is 0 for all, that it
    says nothing."""
    if not any((plain, *means.values())):
        return (
            f"TNS is 0 for every network{on}, as it is whatever the weights where no stage counts "
            f"two steps: it does not say how even they are."
        )
    return (
        f"Against the plain network (TNS {plain:.3g}){on}, the steps are {evenness(means, plain)}."
    )


def evenness(means: dict[str, float], plain: float) -> str:
    """Whose steps are more even than the plain network's, whose less, and whose have the figure
    that is shown of the plain one."""
    found: dict[str, list[str]] = {"more": [], "less": [], "as": []}
    for label, tns in means.items():
        side = "as" if f"{tns:.3g}" == f"{plain:.3g}" else "more" if tns < plain else "less"
        found[side].append(f"{label} {tns:.3g}")
    return "; ".join(f"{side} even with {', '.join(rows)}" for side, rows in found.items() if rows)


def nsi_cells(record: StudyRecord, group: Group) -> list[tuple[str, str, float]]:
    """(module, block, NSI), mean over seeds."""
    cells = []
    for row in group.rows:
        by_block: dict[str, list[float]] = {}
        for found in record.measured(group, row.label, StiffnessResult):
            for step in found.nsi:
                if isfinite(step.mean):
                    by_block.setdefault(step.label, []).append(step.mean)
        cells += [(row.label, block, fmean(values)) for block, values in by_block.items()]
    return cells


def rank_sentence(name: str, values: Sequence[float], result: Sequence[float]) -> str:
    """Kendall's τ with the result and its p-value, exact where that can be."""
    number = len(values)
    if number < 3:
        return f"{name}: {number} networks, too few to rank"
    if len(set(values)) == 1 or len(set(result)) == 1:
        return f"{name}: the same for all {number}, so it ranks nothing"
    if len({*values}) == number == len({*result}):
        tau, p = kendall_without_ties(values, result)
        how = "exact p"
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
        colours: dict[str, str] = {}
        for group in (group for group in record.table.groups if group.data == data):
            for row in group.rows:
                value = row.values.get(metric.name)
                measured = record.measured(group, row.label, StiffnessResult)
                if row.tns is None or value is None or not measured:
                    continue
                label = f"{group.backbone} {row.label}" if several else row.label
                colours[label] = record.colours[row.label]
                points.append((label, row.tns.mean, value.mean))
                depths.append(float(measured[0].depth))
                sizes.append(float(row.parameters or 0))
        if not points:
            continue
        results = [point[2] for point in points]
        texts = [
            rank_sentence("TNS", [point[1] for point in points], results),
            rank_sentence("Depth", depths, results),
            rank_sentence("Parameters", sizes, results),
        ]
        figure = stiffness_figure(points, metric, data, colours)
        figures.append(Figure(figure, f"{'. '.join(texts)}."))
    return figures


_FEW_OR_MANY = "Few gates against many."


def where_section(record: StudyRecord) -> Section:
    """The section of the page that says where the stiffness is."""
    title = "Where?"
    measured = [
        found for run in record.finished if (found := run.measured(StiffnessResult)) is not None
    ]
    placements = [part for group in record.table.groups for part in placement_parts(record, group)]
    if not measured and not placements:
        missing = "No run measured stiffness, so no block is known to be stiff."
        return Section(title, "", [], missing)
    counts = stiffest_counts(measured)
    lead = (
        "If attention acts on stiffness, gates at the few stiff blocks should do most of the work: "
        "the lottery-ticket view."
    )
    parts: list[Part | Folded] = [*placements]
    if measured:
        lead = (
            "How often each block is the stiffest of most test inputs (the first of every stage is "
            f"not counted), over all runs. {lead}"
        )
        parts = [_counted(record, counts), *parts]
    parts.append(words("step", "NSI", "gate"))
    to_do = (
        "Take the fewest gates that are shown to be as good as all, and the cheapest way to choose "
        "them that is above the random ones; if none is, draw them."
        if placements
        else "No module appears both with more and with fewer gates, so this study cannot "
        'tell whether fewer would do. Add `where = ["all", "stages:1", "every:3"]` to its file to '
        "ask."
    )
    answer = " ".join(
        text for text in (placement_answer(record), _where_answer(counts, bool(measured))) if text
    )
    return Section(title, lead, parts, answer or _FEW_OR_MANY, to_do)


def _counted(record: StudyRecord, counts: Sequence[tuple[str, int]]) -> Part:
    if counts:
        total = sum(number for _, number in counts)
        return block_figure(counts_figure(counts, total))
    text = (
        f"What is stored does not say which block is the stiffest; "
        f"`{record.study.called.measure(record.study.name, 'stiffness')}` measures it."
    )
    return Text(text, quiet=True)


def _where_answer(counts: Sequence[tuple[str, int]], measured: bool) -> str:
    if not measured:
        return ""
    if not counts:
        return "Which block is the stiffest is not stored."
    block, number = max(counts, key=lambda count: count[1])
    total = sum(count for _, count in counts)
    return f"Block {block} moves the features most, in {number} of {total} networks."


def stiffest_counts(measured: Sequence[StiffnessResult]) -> list[tuple[str, int]]:
    """(block, number of networks of which it is the stiffest), in the order of the blocks; empty
    where none says it."""
    stiffest = Counter(step.label for found in measured if (step := found.stiffest) is not None)
    blocks = dict.fromkeys(step.label for found in measured for step in found.nsi)
    return [(block, stiffest[block]) for block in blocks] if stiffest else []
