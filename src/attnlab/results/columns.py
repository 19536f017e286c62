"""The tables that are made of a study's columns: for the terminal and Markdown, for a page, for CSV
and for LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from attnlab.page.columns import Column, shown_table, terminal_table, value_table
from attnlab.page.tables import Cell, Table
from attnlab.results.column_list import (
    Columns,
    Line,
    NameOf,
    csv_names,
    metric_column,
    own_columns,
    time_columns,
)
from attnlab.results.study_cells import (
    interval_kind,
)
from attnlab.results.table import (
    Group,
    StudyRow,
    StudyTable,
)

_EQUIVALENCE = ("module", "equivalence_delta", "equivalence_p", "equivalence")
_COST = ("module", "parameters", "macs", "train_speed", "tns", "folded_parameters", "fold_error")
_MAIN = ("parameters", "macs", "milliseconds", "tns", "folded_parameters", "fold_error")


class StudyColumns:
    """The columns of one study's table. Their headings are of its metrics."""

    def __init__(self, table: StudyTable, name_of: NameOf = lambda group: group.name) -> None:
        self.table, self.name_of = table, name_of
        rows = [row for group in table.groups for row in group.rows]
        self.others = [
            f"metric {each.name}"
            for each in table.metrics[1:]
            if any(each.name in row.values for row in rows)
        ]
        names = csv_names(table, name_of)
        self.columns: Columns = {
            **own_columns(table, name_of, names[0]),
            **{
                f"metric {each.name}": metric_column(each, name)
                for each, name in zip(table.metrics[1:], names[1:], strict=True)
            },
        }

    def _chosen(self, *names: str) -> list[Column[Line]]:
        return [self.columns[name] for name in names]

    def _lines(self) -> list[Line]:
        return [Line(group, row) for group in self.table.groups for row in group.rows]

    def terminal(self, group: Group) -> list[Table]:
        """The tables of a group, in their order: what the modules gain, which are as good as the
        one that the study names, the other metrics, cost, and time."""
        metric = self.table.metric.name
        printed = any(metric in row.paper for row in group.rows)
        paper = ("paper", "paper_delta") if printed else ()
        chosen: list[Sequence[str]] = [
            ("module", "seeds", "result", "best", "delta", "p_holm", "verdict", *paper)
        ]
        if any(row.equivalence is not None for row in group.rows):
            chosen.append(_EQUIVALENCE)
        own = {f"metric {name}" for row in group.rows for name in row.values}
        others = [name for name in self.others if name in own]
        if others:
            chosen.append(("module", *others))
        chosen.append((*_COST, "folded"))
        lines = [Line(group, row) for row in group.rows]
        tables = [terminal_table(self._chosen(*names), lines) for names in chosen]
        if group.timed is not None:
            time = time_columns(self.table.metric, group.timed.reference)
            tables.append(terminal_table([self.columns["module"], *time.values()], lines))
        return tables

    def main(self) -> Table:
        """One line per module: its result and Δ on every data set, and the cost."""
        groups, (result, gain) = self.table.groups, self._chosen("result", "gain")
        lines = [Line(groups[0], row) for row in groups[0].rows]
        cost = shown_table(self._chosen("module", *_MAIN), lines)
        heads, rows = [], [list(row[:1]) for row in cost.rows]
        for group in groups:
            on = "" if len(groups) == 1 else f"{self.name_of(group)} "
            heads += [f"{on}{result.heading}", f"{on}{gain.heading}"]
            for line, cells in zip(lines, rows, strict=True):
                cells += [each.cell(_same(group, line.row.label)) for each in (result, gain)]
        body = [[*own, *rest[1:]] for own, rest in zip(rows, cost.rows, strict=True)]
        return Table([cost.columns[0], *heads, *cost.columns[1:]], body)

    def full(self) -> Table:
        """Everything, one line per module and group."""
        names = ["module", "data", "result", "best", "paper", "delta"]
        names += ["student", "anytime", "p_holm", "verdict", "seeds", *self.others]
        names += ["train_speed", "test_speed", "folded"]
        return shown_table(self._chosen(*names), self._lines(), names=2)

    def values(self) -> Table:
        """Every figure with all its digits, for CSV. `delta_low`, `delta_high` and `p` are those
        that the verdict is by, as `interval` says."""
        return value_table(list(self.columns.values()), self._lines())

    def for_latex(self) -> Table:
        """A line per module and group: its result, Δ with its interval, p, the verdict, and the
        parameters."""
        table = self.table
        metric = table.metric
        direction = f", {metric.direction}" if metric.direction else ""
        caption = (
            f"{table.study}: {metric.title}{direction}; mean and standard deviation over\n"
            f"seeds, last epoch. The difference is paired by seed, with its\n"
            f"{100 * table.level:g} % {interval_kind(table.sequential)} interval; p after Holm's "
            f"correction over the modules;\nbold where it is below {1 - table.level:.2g}."
        )
        naming = ["module"] if len(table.groups) == 1 else ["data", "module"]
        columns = self._chosen(*naming, "result", "gain", "p_holm", "verdict", "parameters")
        found = shown_table(columns, self._lines(), names=len(naming), caption=caption)
        return replace(found, rows=[[_blank(cell) for cell in row] for row in found.rows])


def _blank(cell: Cell) -> Cell:
    """A paper's table has nothing where a page has a dash."""
    return Cell("") if cell.text == "—" else cell


def _same(group: Group, label: str) -> Line:
    """The row of this name in another group; an empty one if it has none."""
    rows = (row for row in group.rows if row.label == label)
    return Line(group, next(rows, StudyRow(label, False, (), ())))
