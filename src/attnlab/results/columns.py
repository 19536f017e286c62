"""The columns of a study's table, once, and the tables made of them: for the terminal and Markdown,
for a page, for CSV and for LaTeX."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from attnlab.page.columns import Column, Value, shown_table, terminal_table, value_table
from attnlab.page.tables import Cell, CellTone, Table, number_cell
from attnlab.results.metric import Metric
from attnlab.results.speed import TimedNetwork
from attnlab.results.table import (
    Comparison,
    Equivalence,
    Group,
    PairedDifference,
    PaperFigure,
    StudyRow,
    StudyTable,
    Summary,
)


class Line(NamedTuple):
    """One line: a row of a group."""

    group: Group
    row: StudyRow


NameOf = Callable[[Group], str]
"""What a group is called."""
Read = Callable[[Line], Value]
Columns = dict[str, Column[Line]]

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
        names = _csv_names(table, name_of)
        self.columns: Columns = {
            **_own_columns(table, name_of, names[0]),
            **{
                f"metric {each.name}": _metric_column(each, name)
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
            time = _time_columns(self.table.metric, group.timed.reference)
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


def interval_kind(sequential: bool) -> str:
    """The kind of interval that verdicts are by."""
    return "anytime-valid" if sequential else "Student-t"


def _own_columns(table: StudyTable, name_of: NameOf, result: str) -> Columns:
    """The columns that every study has; `result` is what CSV calls its first metric."""
    timed = (group.timed.reference for group in table.groups if group.timed is not None)
    return {
        **_naming_columns(name_of),
        **_result_columns(table, result),
        **_cost_columns(table, result),
        **_paper_columns(table.metric, result),
        **_test_columns(table.metric),
        **_time_columns(table.metric, next(timed, "")),
        **_equivalence_columns(table),
    }


def _csv_names(table: StudyTable, name_of: NameOf) -> list[str]:
    """What the columns of metrics are called in CSV, so that none has a name that is taken."""
    own = _own_columns(table, name_of, "").values()
    taken = {"paper", "std", *(name for column in own for name in column.values)}
    taken |= {f"{metric.name}_std" for metric in table.metrics}
    return [f"metric_{each.name}" if each.name in taken else each.name for each in table.metrics]


def distinct_digits(values: Sequence[float], fewest: int = 3, most: int = 6) -> int:
    """Return how many digits after the point it takes to see that values that differ do differ."""
    for digits in range(fewest, most):
        if len({f"{value:.{digits}f}" for value in values}) == len(set(values)):
            return digits
    return most


def summary_cell(summary: Summary | None, metric: Metric, quiet: bool = False) -> Cell:
    """A mean with its standard deviation: `96.38 ± 0.79`."""
    if summary is None:
        return Cell("—")
    mean, _, std = summary.text(metric.digits).partition(" ")
    return Cell(mean, std, summary.mean, "quiet" if quiet else "")


def delta_cell(row: StudyRow, metric: Metric) -> Cell:
    """Δ with its interval; of the plain backbone its result."""
    value = row.values.get(metric.name)
    if value is None:
        return Cell("missing", tone="quiet")
    compared = row.comparison
    if compared is None:
        text = metric.shown_text(value.mean)
        return Cell(text, order=0.0 if row.plain else None, tone="quiet")
    mean, low, high = compared.difference.mean, compared.low, compared.high
    interval = "" if low is None or high is None else metric.interval_text(low, high)
    return Cell(metric.signed(mean), interval, mean, compared_tone(compared))


def compared_tone(compared: Comparison) -> CellTone:
    """Coloured if the study says that it is a gain or a loss."""
    if compared.standing == "gain":
        return "gain"
    return "loss" if compared.standing == "loss" else "quiet"


def _same(group: Group, label: str) -> Line:
    """The row of this name in another group; an empty one if it has none."""
    rows = (row for row in group.rows if row.label == label)
    return Line(group, next(rows, StudyRow(label, False, (), ())))


def _naming_columns(name_of: NameOf) -> Columns:
    return {
        "data": Column(
            "data",
            lambda line: Cell(name_of(line.group)),
            values={
                "data": lambda line: line.group.data,
                "backbone": lambda line: line.group.backbone,
            },
        ),
        "module": Column(
            "module",
            lambda line: Cell(line.row.label),
            values={"module": lambda line: line.row.label},
        ),
        "seeds": Column(
            "seeds",
            lambda line: _seeds_cell(line.row),
            text=lambda line: _seeds_text(line.row),
            values={
                "seeds": lambda line: " ".join(map(str, line.row.seeds)),
                "missing_seeds": lambda line: " ".join(map(str, line.row.missing)),
            },
        ),
    }


def _result_columns(table: StudyTable, name: str) -> Columns:
    metric = table.metric
    unit = metric.difference_unit
    return {
        "result": _metric_column(metric, name),
        "best": Column(
            f"best {table.unit} {metric.unit}".strip(),
            lambda line: summary_cell(line.row.best, metric, quiet=True),
            f"best {table.unit}*",
            lambda line: _text(line.row.best, metric),
            {f"best_epoch_{name}": lambda line: _mean(line.row.best)},
        ),
        "delta": Column(
            f"Δ {unit}".strip(),
            lambda line: delta_cell(line.row, metric),
            f"Δ [{table.level:.0%} interval]",
            lambda line: _delta_text(line.row.comparison, metric),
            {
                "delta": _differing(lambda difference: difference.mean),
                "delta_low": _comparing(lambda compared: compared.low),
                "delta_high": _comparing(lambda compared: compared.high),
                "p": _comparing(lambda compared: compared.p_value),
            },
        ),
        "p_holm": Column(
            "p (Holm)",
            lambda line: _p_cell(_comparing(lambda compared: compared.adjusted_p)(line)),
            text=lambda line: _p_text(line.row.comparison),
            values={"p_holm": _comparing(lambda compared: compared.adjusted_p)},
        ),
        "verdict": Column(
            "verdict",
            lambda line: _verdict_cell(line.row.comparison),
            text=lambda line: line.row.comparison.verdict if line.row.comparison else "",
            values={
                "verdict": _comparing(lambda compared: compared.verdict),
            },
        ),
    }


def _test_columns(metric: Metric) -> Columns:
    """How the difference was judged, and by which tests."""
    return {
        "gain": Column(
            f"Δ {metric.difference_unit}".strip(),
            lambda line: _gain_cell(line.row, metric),
            values={
                "interval": _comparing(lambda compared: interval_kind(compared.sequential)),
                "cannot_tell": _comparing(lambda compared: compared.note),
                "stale": lambda line: "; ".join(line.row.stale),
            },
        ),
        "student": Column(
            "p (t-test)",
            lambda line: _p_cell(_differing(lambda difference: difference.p_value)(line)),
            values={
                "student_low": _differing(lambda difference: difference.low),
                "student_high": _differing(lambda difference: difference.high),
                "student_p": _differing(lambda difference: difference.p_value),
            },
        ),
        "anytime": Column(
            "p (anytime)",
            lambda line: _p_cell(_differing(lambda difference: difference.anytime_p)(line)),
            values={
                "anytime_low": _differing(lambda difference: difference.anytime_low),
                "anytime_high": _differing(lambda difference: difference.anytime_high),
                "anytime_p": _differing(lambda difference: difference.anytime_p),
            },
        ),
    }


def _paper_columns(metric: Metric, name: str) -> Columns:
    def printed(line: Line) -> str:
        figure = line.row.paper.get(metric.name)
        return "" if figure is None else figure.text(metric.digits)

    def gain(line: Line) -> str:
        plain = line.group.plain
        if line.row.plain or plain is None:
            return ""
        own, base = line.row.paper.get(metric.name), plain.paper.get(metric.name)
        return "" if own is None or base is None else metric.signed(own.mean - base.mean)

    def figure(read: Callable[[PaperFigure], Value]) -> Read:
        def value(line: Line) -> Value:
            own = line.row.paper.get(metric.name)
            return None if own is None else read(own)

        return value

    return {
        "paper": Column(
            f"paper {metric.unit}".strip(),
            lambda line: Cell(printed(line), tone="quiet"),
            f"paper {metric.title}",
            printed,
            {
                f"paper_{name}": figure(lambda own: own.mean),
                "paper_std": figure(lambda own: own.std),
            },
        ),
        "paper_delta": Column("paper Δ", lambda line: Cell(gain(line))),
    }


def _metric_column(metric: Metric, name: str) -> Column[Line]:
    def value(line: Line) -> Summary | None:
        return line.row.values.get(metric.name)

    return Column(
        metric.title,
        lambda line: summary_cell(value(line), metric),
        text=lambda line: _text(value(line), metric),
        values={
            name: lambda line: _mean(value(line)),
            f"{name}_std": lambda line: _std(value(line)),
        },
    )


def _cost_columns(table: StudyTable, name: str) -> Columns:
    metric = table.metric
    rows = table.groups[0].rows
    parameter_digits, mac_digits = (
        distinct_digits([number / 1e6 for number in numbers if number is not None])
        for numbers in ([row.parameters for row in rows], [row.macs for row in rows])
    )
    return {
        "parameters": _count_column(
            "params M", "parameters", lambda row: row.parameters, parameter_digits
        ),
        "macs": _count_column("MACs M", "MACs", lambda row: row.macs, mac_digits, "macs"),
        "train_speed": _speed_column(
            f"{metric.samples}/s train",
            f"train {metric.samples}/s",
            f"train_{metric.samples}",
            lambda row: row.train_speed,
        ),
        "test_speed": _speed_column(
            f"{metric.samples}/s test",
            "",
            f"inference_{metric.samples}",
            lambda row: row.inference_speed,
        ),
        **_network_columns(metric, name, parameter_digits),
    }


def _network_columns(metric: Metric, name: str, parameter_digits: int) -> Columns:
    """What the gates do to the trajectory, and what is left when they are folded."""
    return {
        "tns": Column(
            "TNS",
            lambda line: _digits_cell(_mean(line.row.tns)),
            text=lambda line: "" if line.row.tns is None else line.row.tns.text(4),
            values={
                "tns": lambda line: _mean(line.row.tns),
                "tns_std": lambda line: _std(line.row.tns),
            },
        ),
        "fold_error": Column(
            "fold error",
            lambda line: _error_cell(line.row.fold_error),
            text=lambda line: "" if line.row.fold_error is None else f"{line.row.fold_error:.0e}",
            values={"fold_error": lambda line: line.row.fold_error},
        ),
        "folded_parameters": _count_column(
            "params M folded",
            "folded parameters",
            lambda row: row.folded_parameters,
            parameter_digits,
            "folded_parameters",
        ),
        "folded": Column(
            f"{metric.label} folded",
            lambda line: summary_cell(line.row.folded, metric),
            f"folded {metric.title}",
            lambda line: _text(line.row.folded, metric),
            {f"folded_{name}": lambda line: _mean(line.row.folded)},
        ),
    }


def _count_column(
    heading: str, short: str, read: Callable[[StudyRow], int | None], digits: int, name: str = ""
) -> Column[Line]:
    """A number of things: in millions on a page, in full elsewhere."""

    def cell(line: Line) -> Cell:
        number = read(line.row)
        return number_cell(None if number is None else number / 1e6, f"{{:.{digits}f}}")

    def text(line: Line) -> str:
        number = read(line.row)
        return "" if number is None else f"{number:,}"

    return Column(heading, cell, short, text, {name or short: lambda line: read(line.row)})


def _speed_column(
    heading: str, short: str, name: str, read: Callable[[StudyRow], float | None]
) -> Column[Line]:
    def text(line: Line) -> str:
        speed = read(line.row)
        return "" if speed is None else f"{speed:,.0f}"

    return Column(
        heading,
        lambda line: number_cell(read(line.row), "{:.0f}"),
        short,
        text,
        {f"{name}_per_second": lambda line: read(line.row)},
    )


def _time_columns(metric: Metric, reference: str) -> Columns:
    def milliseconds(line: Line) -> float | None:
        return None if line.row.speed is None else line.row.speed.milliseconds

    def taken(line: Line) -> str:
        found = milliseconds(line)
        return "" if found is None else f"{found:.3g}"

    def ratio(line: Line) -> str:
        return "1" if line.row.label == reference else _ratio_text(line.row.speed)

    return {
        "milliseconds": Column(
            "ms", lambda line: _digits_cell(milliseconds(line)), f"ms / {metric.sample}", taken
        ),
        "time": Column(
            f"time / {reference} [95% interval]",
            lambda line: Cell(ratio(line)),
            values=_ratio_values("time_ratio", lambda row: row.speed),
        ),
        "folded_time": Column(
            "folded",
            lambda line: Cell(_ratio_text(line.row.folded_speed)),
            values=_ratio_values("folded_time_ratio", lambda row: row.folded_speed),
        ),
    }


def _ratio_values(name: str, read: Callable[[StudyRow], TimedNetwork | None]) -> Mapping[str, Read]:
    def of(figure: Callable[[TimedNetwork], float]) -> Read:
        def value(line: Line) -> Value:
            timed = read(line.row)
            return None if timed is None else figure(timed)

        return value

    return {
        name: of(lambda timed: timed.ratio),
        f"{name}_low": of(lambda timed: timed.low),
        f"{name}_high": of(lambda timed: timed.high),
    }


def _equivalence_columns(table: StudyTable) -> Columns:
    rows = [row for group in table.groups for row in group.rows]
    first = next((row.equivalence for row in rows if row.equivalence is not None), None)
    to, margin = ("", 0.0) if first is None else (first.to, first.margin)

    def text(show: Callable[[Equivalence], str]) -> Callable[[Line], Cell]:
        def cell(line: Line) -> Cell:
            return Cell("" if line.row.equivalence is None else show(line.row.equivalence))

        return cell

    return {
        "equivalence_delta": Column(
            f"Δ to {to}",
            text(lambda found: _equivalence_text(found, table.metric)),
            values={
                "equivalent_to": _claimed(lambda found: found.to),
                "equivalence_margin": _claimed(lambda found: found.margin),
                "equivalence_delta": _claimed(lambda found: found.mean),
                "equivalence_low": _claimed(lambda found: found.low),
                "equivalence_high": _claimed(lambda found: found.high),
            },
        ),
        "equivalence_p": Column(
            "p (Holm)",
            text(lambda found: "" if found.adjusted_p is None else f"{found.adjusted_p:.3f}"),
            values={
                "equivalence_p": _claimed(lambda found: found.p_value),
                "equivalence_p_holm": _claimed(lambda found: found.adjusted_p),
            },
        ),
        "equivalence": Column(
            f"as good, within ±{margin:g}",
            text(lambda found: found.text),
            values={"equivalence": _claimed(lambda found: found.text)},
        ),
    }


def _comparing(read: Callable[[Comparison], Value]) -> Read:
    """A figure of the comparison; None if there is none."""

    def value(line: Line) -> Value:
        return None if line.row.comparison is None else read(line.row.comparison)

    return value


def _differing(read: Callable[[PairedDifference], Value]) -> Read:
    """A figure of the paired difference; None if there is none."""
    return _comparing(lambda compared: read(compared.difference))


def _claimed(read: Callable[[Equivalence], Value]) -> Read:
    """A figure of the equivalence; None if none is claimed."""

    def value(line: Line) -> Value:
        return None if line.row.equivalence is None else read(line.row.equivalence)

    return value


def _text(value: Summary | None, metric: Metric) -> str:
    return "" if value is None else value.text(metric.digits)


def _mean(summary: Summary | None) -> float | None:
    return None if summary is None else summary.mean


def _std(summary: Summary | None) -> float | None:
    return None if summary is None else summary.std


def _delta_text(found: Comparison | None, metric: Metric) -> str:
    if found is None:
        return ""
    mean = metric.signed(found.difference.mean)
    if found.low is None or found.high is None:
        return f"{mean} [–]"
    return f"{mean} {metric.interval_text(found.low, found.high)}"


def _equivalence_text(found: Equivalence, metric: Metric) -> str:
    interval = "[–]"
    if found.low is not None and found.high is not None:
        interval = metric.interval_text(found.low, found.high)
    return f"{metric.signed(found.mean)} {interval}"


def _p_text(found: Comparison | None) -> str:
    """Without an interval there is no verdict, so its p-value would mislead."""
    if found is None or found.adjusted_p is None or found.low is None or found.high is None:
        return ""
    return f"{found.adjusted_p:.3f}"


def _p_cell(value: Value) -> Cell:
    return number_cell(value if isinstance(value, float) else None, "{:.3g}")


def _gain_cell(row: StudyRow, metric: Metric) -> Cell:
    return Cell("—", order=0.0) if row.plain else delta_cell(row, metric)


def _verdict_cell(compared: Comparison | None) -> Cell:
    return Cell("") if compared is None else Cell(compared.verdict, compared.note)


def _seeds_text(row: StudyRow) -> str:
    planned = len(row.seeds) + len(row.missing)
    found = f"{len(row.seeds)}" if not row.missing else f"{len(row.seeds)} of {planned}"
    stale = _stale(row)
    return f"{found}, {stale}" if stale else found


def _stale(row: StudyRow) -> str:
    """`3 stale`; why they are has a line of its own among the changes of the table."""
    number = sum(int(reason.partition(":")[0]) for reason in row.stale)
    return f"{number} stale" if number else ""


def _seeds_cell(row: StudyRow) -> Cell:
    """`3 / 5`, and `3 stale`."""
    return Cell(f"{len(row.seeds)} / {len(row.seeds) + len(row.missing)}", _stale(row))


def _ratio_text(timed: TimedNetwork | None) -> str:
    return "" if timed is None else f"{timed.ratio:.2f} [{timed.low:.2f}, {timed.high:.2f}]"


def _error_cell(error: float | None) -> Cell:
    """A fold whose output changes by less than 1e-6 is right as far as float32 can tell."""
    shown = "—" if error is None else f"{error:.1e}{' ✓' if error < 1e-6 else ''}"
    return Cell(shown, order=error)


def _digits_cell(value: float | None) -> Cell:
    """Three digits are seen: 0.0123, 1.80, 41.0, 1230."""
    digits = 2 if not value else max(0, 2 - math.floor(math.log10(abs(value))))
    return number_cell(value, f"{{:.{digits}f}}")
