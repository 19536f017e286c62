"""The part of a study's page about placement: few gates or many, chosen or drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from attnlab.instruments.place.section_figures import PlacedPoint, placements_figure
from attnlab.page.parts import Cell, Figure, Folded, Heading, Part, Table, Text, number_cell
from attnlab.results.metric import directed
from attnlab.results.record import StudyRecord
from attnlab.results.table import Group, StudyRow

ALL, PLAIN, RANDOM = "all", "plain", "random"


@dataclass(frozen=True)
class PlacedRow:
    """A row of a study by how its blocks were chosen."""

    row: StudyRow
    strategy: str
    """The word of its `where`; `all`, or `plain`."""
    gate: str
    sites: int

    @property
    def delta(self) -> float:
        """The difference to the plain backbone."""
        return self.row.comparison.difference.mean if self.row.comparison else 0.0


def placed_rows(record: StudyRecord, group: Group) -> list[PlacedRow]:
    """The rows whose gates are counted; empty where the study has one number of gates only, or has
    no plain backbone."""
    if group.plain is None or not group.plain.seeds:
        return []
    found = []
    for row in group.rows:
        runs = record.of(group, row.label)
        sites = runs[0].result.sites if runs and runs[0].result is not None else None
        if sites is None or (row.comparison is None and not row.plain):
            continue
        entry = runs[0].entry
        settings = entry.identity.get("settings")
        where = settings.get("where") if isinstance(settings, Mapping) else None
        strategy = PLAIN if row.plain else _strategy(where)
        found.append(PlacedRow(row, strategy, entry.attention, sites))
    gates = {each.gate for each in found if each.strategy != PLAIN}
    varied = [g for g in gates if len({each.sites for each in found if each.gate == g}) > 1]
    return [each for each in found if each.strategy == PLAIN or each.gate in varied]


def _strategy(where: object) -> str:
    """`stiffest` of `stiffest:2`, also after an `in:module`."""
    if where is None:
        return ALL
    if not isinstance(where, str):
        return "modules by name"
    text = where.partition(" ")[2] if where.startswith("in:") else where
    return text.partition(":")[0] or ALL


def null_sentence(chosen: PlacedRow, drawn: Sequence[PlacedRow]) -> str:
    """Say where a choice falls among the random ones of the same cost."""
    above = sum(chosen.delta > each.delta for each in drawn)
    p = (1 + sum(each.delta >= chosen.delta for each in drawn)) / (1 + len(drawn))
    return f"above {above} of {len(drawn)} random placements (p = {p:.2g}, one-sided)"


def random_like(chosen: PlacedRow, rows: Sequence[PlacedRow]) -> list[PlacedRow]:
    """The random placements that cost the same and have the same seeds, if finished."""
    return [
        each
        for each in rows
        if each.strategy == RANDOM
        and (each.gate, each.sites, each.row.seeds) == (chosen.gate, chosen.sites, chosen.row.seeds)
    ]


def placement_parts(record: StudyRecord, group: Group) -> list[Part | Folded]:
    """The figure, what the null says, and what is as good as all; empty where the study does not
    ask."""
    rows = placed_rows(record, group)
    if all(each.strategy == PLAIN for each in rows):
        return []
    metric = record.metric
    points = [
        PlacedPoint(
            each.strategy,
            each.sites,
            each.delta,
            each.row.comparison.low if each.row.comparison else None,
            each.row.comparison.high if each.row.comparison else None,
            f"{each.row.label}: {each.sites} gates, {metric.difference_text(each.delta)}",
        )
        for each in rows
    ]
    title = directed(f"Δ {metric.label} {metric.difference_unit}".strip(), metric)
    caption = (
        "Each point is a row of the study, with its interval; grey ticks are random placements, "
        "the null. Points at one number of gates cost the same."
    )
    parts: list[Part | Folded] = [
        Heading(record.name_of(group)),
        Figure(placements_figure(points, title), caption),
    ]
    sentences = answers(record, rows)
    if sentences:
        parts.append(Text(" ".join(sentences)))
    table = _equivalence_table(record, group)
    if table is not None:
        parts.append(table)
    chosen = _chosen_table(record, group)
    if chosen is not None:
        parts.append(Folded("Which blocks each run chose, and by what margin", [chosen]))
    return parts


def answers(record: StudyRecord, rows: Sequence[PlacedRow]) -> list[str]:
    """One sentence for each choice that has random ones beside it."""
    metric, found = record.metric, []
    for each in rows:
        drawn = random_like(each, rows)
        if each.strategy in (PLAIN, ALL, RANDOM) or not drawn:
            continue
        found.append(
            f"{each.row.label} ({each.sites} gates): {metric.difference_text(each.delta)}, "
            f"{null_sentence(each, drawn)}."
        )
    nulls = {(e.gate, e.sites, e.row.seeds): random_like(e, rows) for e in rows}
    for (gate, sites, _), drawn in nulls.items():
        if len(drawn) > 1:
            low, high = min(e.delta for e in drawn), max(e.delta for e in drawn)
            found.append(
                f"{len(drawn)} random placements of {sites} {gate} gates: mean "
                f"{metric.difference_text(fmean(e.delta for e in drawn))}, from "
                f"{metric.signed(low)} to {metric.signed(high)}."
            )
    return found


def placement_answer(record: StudyRecord) -> str:
    """Say in a sentence or two what is as good as all, and whether choosing beats drawing."""
    found = []
    for group in record.table.groups:
        rows = placed_rows(record, group)
        equal = [r.equivalence for r in group.rows if r.equivalence is not None and not r.plain]
        # Whether a module is as good as the plain network says nothing of fewer gates.
        few = group.plain is None or any(each.to != group.plain.label for each in equal)
        if equal and few:
            shown = sum(each.verdict == "equivalent" for each in equal)
            found.append(
                f"{shown or 'None'} of {len(equal)} rows with fewer gates "
                f"{'are' if shown > 1 else 'is'} shown to be as good as {equal[0].to}, within "
                f"±{equal[0].margin:g}."
            )
        ways = [each for each in rows if each.strategy not in (PLAIN, ALL, RANDOM)]
        judged = [(each, drawn) for each in ways if (drawn := random_like(each, rows))]
        above = [e.row.label for e, drawn in judged if all(e.delta > r.delta for r in drawn)]
        if judged:
            names = f": {', '.join(above)}" if above else ""
            found.append(
                f"{len(above) or 'None'} of {len(judged)} ways to choose "
                f"{'are' if len(above) > 1 else 'is'} above all random placements of the same "
                f"cost{names}."
            )
    return " ".join(found)


def _equivalence_table(record: StudyRecord, group: Group) -> Table | None:
    metric, rows = record.metric, [row for row in group.rows if row.equivalence is not None]
    if not rows:
        return None
    first = rows[0].equivalence
    assert first is not None
    columns = ["row", f"Δ to {first.to}", "p", "p (Holm)", f"as good, within ±{first.margin:g}?"]
    lines = []
    for row in rows:
        found = row.equivalence
        assert found is not None
        interval = ""
        if found.low is not None and found.high is not None:
            interval = metric.interval_text(found.low, found.high)
        lines.append(
            [
                Cell(row.label),
                Cell(metric.signed(found.mean), interval, found.mean),
                number_cell(found.p_value, "{:.3g}"),
                number_cell(found.adjusted_p, "{:.3g}"),
                Cell(found.text, found.note),
            ]
        )
    return Table(columns, lines)


def _chosen_table(record: StudyRecord, group: Group) -> Table | None:
    lines = []
    for row in group.rows:
        for run in record.of(group, row.label):
            found = None if run.result is None else run.result.placement
            if found is not None:
                lines.append(
                    [
                        Cell(row.label),
                        Cell(str(run.entry.seed)),
                        Cell(found.where),
                        Cell("; ".join(found.reasons)),
                        Cell(f"{found.source_is} ({found.source}), {found.images} images"),
                    ]
                )
    if not lines:
        return None
    return Table(["row", "seed", "blocks", "why", "measured of"], lines, names=3)
