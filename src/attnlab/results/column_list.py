"""The columns that a study's table can have, each written once for every place that shows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from attnlab.page.columns import Column, Value
from attnlab.page.tables import Cell, number_cell
from attnlab.results.metric import Metric
from attnlab.results.speed import TimedNetwork
from attnlab.results.study_cells import (
    delta_cell,
    delta_text,
    digits_cell,
    distinct_digits,
    equivalence_text,
    error_cell,
    gain_cell,
    interval_kind,
    p_cell,
    p_text,
    ratio_text,
    seeds_cell,
    seeds_text,
    summary_cell,
    summary_mean,
    summary_std,
    summary_text,
    verdict_cell,
)
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


def own_columns(table: StudyTable, name_of: NameOf, result: str) -> Columns:
    """The columns that every study has; `result` is what CSV calls its first metric."""
    timed = (group.timed.reference for group in table.groups if group.timed is not None)
    return {
        **_naming_columns(name_of),
        **_result_columns(table, result),
        **_cost_columns(table, result),
        **_paper_columns(table.metric, result),
        **_test_columns(table.metric),
        **time_columns(table.metric, next(timed, "")),
        **_equivalence_columns(table),
    }


def csv_names(table: StudyTable, name_of: NameOf) -> list[str]:
    """What the columns of metrics are called in CSV, so that none has a name that is taken."""
    own = own_columns(table, name_of, "").values()
    taken = {"paper", "std", *(name for column in own for name in column.values)}
    taken |= {f"{metric.name}_std" for metric in table.metrics}
    return [f"metric_{each.name}" if each.name in taken else each.name for each in table.metrics]


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
            lambda line: seeds_cell(line.row),
            text=lambda line: seeds_text(line.row),
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
        "result": metric_column(metric, name),
        "best": Column(
            f"best {table.unit} {metric.unit}".strip(),
            lambda line: summary_cell(line.row.best, metric, quiet=True),
            f"best {table.unit}*",
            lambda line: summary_text(line.row.best, metric),
            {f"best_epoch_{name}": lambda line: summary_mean(line.row.best)},
        ),
        "delta": Column(
            f"Δ {unit}".strip(),
            lambda line: delta_cell(line.row, metric),
            f"Δ [{table.level:.0%} interval]",
            lambda line: delta_text(line.row.comparison, metric),
            {
                "delta": _differing(lambda difference: difference.mean),
                "delta_low": _comparing(lambda compared: compared.low),
                "delta_high": _comparing(lambda compared: compared.high),
                "p": _comparing(lambda compared: compared.p_value),
            },
        ),
        "p_holm": Column(
            "p (Holm)",
            lambda line: p_cell(_comparing(lambda compared: compared.adjusted_p)(line)),
            text=lambda line: p_text(line.row.comparison),
            values={"p_holm": _comparing(lambda compared: compared.adjusted_p)},
        ),
        "verdict": Column(
            "verdict",
            lambda line: verdict_cell(line.row.comparison),
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
            lambda line: gain_cell(line.row, metric),
            values={
                "interval": _comparing(lambda compared: interval_kind(compared.sequential)),
                "cannot_tell": _comparing(lambda compared: compared.note),
                "stale": lambda line: "; ".join(line.row.stale),
            },
        ),
        "student": Column(
            "p (t-test)",
            lambda line: p_cell(_differing(lambda difference: difference.p_value)(line)),
            values={
                "student_low": _differing(lambda difference: difference.low),
                "student_high": _differing(lambda difference: difference.high),
                "student_p": _differing(lambda difference: difference.p_value),
            },
        ),
        "anytime": Column(
            "p (anytime)",
            lambda line: p_cell(_differing(lambda difference: difference.anytime_p)(line)),
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


def metric_column(metric: Metric, name: str) -> Column[Line]:
    def value(line: Line) -> Summary | None:
        return line.row.values.get(metric.name)

    return Column(
        metric.title,
        lambda line: summary_cell(value(line), metric),
        text=lambda line: summary_text(value(line), metric),
        values={
            name: lambda line: summary_mean(value(line)),
            f"{name}_std": lambda line: summary_std(value(line)),
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
            lambda line: digits_cell(summary_mean(line.row.tns)),
            text=lambda line: "" if line.row.tns is None else line.row.tns.text(4),
            values={
                "tns": lambda line: summary_mean(line.row.tns),
                "tns_std": lambda line: summary_std(line.row.tns),
            },
        ),
        "fold_error": Column(
            "fold error",
            lambda line: error_cell(line.row.fold_error),
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
            lambda line: summary_text(line.row.folded, metric),
            {f"folded_{name}": lambda line: summary_mean(line.row.folded)},
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


def time_columns(metric: Metric, reference: str) -> Columns:
    def milliseconds(line: Line) -> float | None:
        return None if line.row.speed is None else line.row.speed.milliseconds

    def taken(line: Line) -> str:
        found = milliseconds(line)
        return "" if found is None else f"{found:.3g}"

    def ratio(line: Line) -> str:
        return "1" if line.row.label == reference else ratio_text(line.row.speed)

    return {
        "milliseconds": Column(
            "ms", lambda line: digits_cell(milliseconds(line)), f"ms / {metric.sample}", taken
        ),
        "time": Column(
            f"time / {reference} [95% interval]",
            lambda line: Cell(ratio(line)),
            values=_ratio_values("time_ratio", lambda row: row.speed),
        ),
        "folded_time": Column(
            "folded",
            lambda line: Cell(ratio_text(line.row.folded_speed)),
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
            text(lambda found: equivalence_text(found, table.metric)),
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
