"""The section of a study's page on corrupted images."""

from __future__ import annotations

from collections.abc import Sequence

from attnlab.page.parts import Cell, Folded, Part, Section, Table, number_cell
from attnlab.results.record import StudyRecord
from attnlab.results.table import Beside, StudyRow


def corruptions_section(record: StudyRecord) -> Section | None:
    """Return the section, or None if no row was tested on corrupted images."""
    rows = [(group, row) for group in record.table.groups for row in group.rows if row.beside]
    if not rows:
        return None
    figures = [each.metric for each in rows[0][1].beside.values()]
    columns = ["module", "data"]
    for metric in figures:
        columns += [metric.title, "Δ"]
    lines = [
        [Cell(row.label), Cell(record.name_of(group)), *_cells(row, [m.name for m in figures])]
        for group, row in rows
    ]
    names = list(dict.fromkeys(name for _, row in rows for name in row.by_corruption))
    each = [
        [
            Cell(row.label),
            Cell(record.name_of(group)),
            *(number_cell(row.by_corruption.get(name), "{:.2f}") for name in names),
        ]
        for group, row in rows
    ]
    lead = (
        f"Mean over {len(names)} corruptions at five strengths, the same images for every network; "
        f"ECE with 15 bins. Δ is paired by seed with the plain backbone, with its {record.level} "
        f"Student-t interval, without correction for many rows."
    )
    parts: list[Part | Folded] = [
        Table(columns, lines, names=2),
        Folded(
            "By corruption, mean over strengths and seeds",
            [Table(["module", "data", *(name.replace("_", " ") for name in names)], each, names=2)],
        ),
    ]
    return Section("Does it hold on corrupted images?", lead, parts)


def _cells(row: StudyRow, names: Sequence[str]) -> list[Cell]:
    cells = []
    for name in names:
        found = row.beside.get(name)
        if found is None:
            cells += [Cell("—"), Cell("—")]
            continue
        mean = found.summary.mean
        cells.append(Cell(found.summary.text(found.metric.digits), order=mean))
        cells.append(_difference(found))
    return cells


def _difference(found: Beside) -> Cell:
    compared = found.difference
    if compared is None:
        return Cell("—")
    text = found.metric.signed(compared.mean)
    if compared.low is None or compared.high is None:
        return Cell(text, small=compared.note, order=compared.mean)
    interval = f"[{found.metric.signed(compared.low)}, {found.metric.signed(compared.high)}]"
    return Cell(text, small=interval, order=compared.mean)
