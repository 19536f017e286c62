"""The part of a study's page about cost: time, interleaved, and the way of the training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from attnlab.lab.pages.doubts import deployable
from attnlab.lab.pages.figures import MetricCurve, curves_figure
from attnlab.page.parts import Figure, Folded, Heading, Legend, Part, Row, Section, Text
from attnlab.page.plot import GREY, Spec, row_colours
from attnlab.page.scatter import scatter
from attnlab.results import Metric
from attnlab.results.epoch import Budget
from attnlab.results.metric import directed
from attnlab.results.record import RunRecord, StudyRecord
from attnlab.results.speed import TimedNetwork
from attnlab.results.table import Group, StudyRow

Kind = Literal["plain", "gated", "folds", "folded"]
"""The plain backbone; gates that stay; gates that fold; the same network without them."""

_SHAPES = {"plain": "diamond", "gated": "square", "folds": "circle", "folded": "circle"}
_WORDS = {
    "plain": "no gate",
    "gated": "does not fold",
    "folds": "before folding",
    "folded": "folded",
}


@dataclass(frozen=True)
class CostPoint:
    """One network: what it costs and what it reaches."""

    module: str
    milliseconds: float
    result: float
    kind: Kind
    low: float | None = None
    """The lower end of the interval of the time, in milliseconds; None for what the others are
    relative to."""
    high: float | None = None


def cost_figure(
    points: Sequence[CostPoint],
    metric: Metric,
    title: str = "",
    colours: Mapping[str, str] | None = None,
) -> Spec:
    """Result against time with its interval; a dashed line leads from a module to its folded
    form."""
    if colours is None:
        colours = row_colours((point.module, point.kind == "plain") for point in points)
    base = scatter(
        [_cost_value(point, metric, colours[point.module]) for point in points],
        ("ms", f"time per {metric.sample}, ms"),
        ("result", directed(f"{metric.title}, mean over seeds", metric)),
        title,
        shape={"field": "shape", "type": "nominal", "scale": None},
    )
    mark = base["layer"][0]
    mark["encoding"] |= {
        "fill": {"field": "colour", "type": "nominal", "scale": None},
        "stroke": {"field": "edge", "type": "nominal", "scale": None},
    }
    interval = {
        "mark": {"type": "rule", "strokeWidth": 1.6, "color": GREY, "aria": False},
        "encoding": {"x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}},
    }
    return {**base, "layer": [interval, *_way_layers(points, colours), *base["layer"]]}


def _way_layers(points: Sequence[CostPoint], colours: Mapping[str, str]) -> list[Spec]:
    """A dashed line from every module that folds to its folded form, if there is one."""
    folded = {p.module: p for p in points if p.kind == "folded"}
    ways = [
        {
            "ms": p.milliseconds,
            "result": p.result,
            "to": f.milliseconds,
            "end": f.result,
            "colour": colours[p.module],
        }
        for p in points
        if p.kind == "folds" and (f := folded.get(p.module)) is not None
    ]
    encoding = {
        "x2": {"field": "to"},
        "y2": {"field": "end"},
        "color": {"field": "colour", "type": "nominal", "scale": None},
    }
    mark = {"type": "rule", "strokeDash": [4, 3], "aria": False}
    return [{"data": {"values": ways}, "mark": mark, "encoding": encoding}] if ways else []


def _cost_value(point: CostPoint, metric: Metric, colour: str) -> Spec:
    time = point.milliseconds
    return {
        "module": f"{point.module}, folded" if point.kind == "folded" else point.module,
        "ms": time,
        "low": time if point.low is None else point.low,
        "high": time if point.high is None else point.high,
        "result": point.result,
        "shape": _SHAPES[point.kind],
        "colour": "white" if point.kind == "folded" else colour,
        "edge": colour,
        "text": _text(point, metric),
    }


def _text(point: CostPoint, metric: Metric) -> str:
    interval = ""
    if point.low is not None and point.high is not None:
        interval = f" [{point.low:.3g}, {point.high:.3g}]"
    return (
        f"{point.module}, {_WORDS[point.kind]}: {metric.shown_text(point.result)} at "
        f"{point.milliseconds:.3g} ms{interval} per {metric.sample}"
    )


def cost_section(record: StudyRecord, doubtful: bool = False) -> Section:
    """What does it cost? If the study is `doubtful`, nothing is to be deployed."""
    title = "What does it cost?"
    if not record.finished:
        return Section(title, "No run is finished.", [])
    scatter, curves, metric = [], [], record.metric
    missing: dict[str, None] = {}
    for group in record.table.groups:
        name = record.name_of(group)
        points = cost_points(group, metric)
        if points:
            scatter.append(Figure(cost_figure(points, metric, name, record.colours)))
        elif group.why_not_timed:
            missing[f"{name}: no picture of the time, because {group.why_not_timed}."] = None
        shown = curves_of(record, group)
        # A run that was tested once has a point and no curve.
        if any(len(curve.mean) > 1 for curve in shown):
            figure = curves_figure(
                shown,
                _drops(record, group),
                metric,
                name,
                colours=record.colours,
                budget=_budget(record, group),
            )
            curves.append(Figure(figure))
    text = (
        f"{metric.label} on the test {metric.samples}, {_how_often(record)}: mean, and range over "
        f"seeds; dashes where the learning rate drops."
    )
    parts: list[Part | Folded] = [Legend(_legend(record))] if scatter else []
    if len(scatter) == len(curves) == 1:  # one data set: both fit side by side
        time, way = replace(scatter[0], caption=_how(record)), replace(curves[0], caption=text)
        parts.append(Row([time, way]))
    else:
        parts += [Row(scatter), Text(_how(record), quiet=True)] if scatter else []
        parts += [Heading("The way there"), Row(curves), Text(text, quiet=True)] if curves else []
    parts += [Text(text, quiet=True) for text in missing]
    return Section(title, "", parts, _answer(record), _to_do(record, doubtful))


def cost_points(group: Group, metric: Metric) -> list[CostPoint]:
    """The rows that were timed interleaved, and their folded forms."""
    points = []
    for row in group.rows:
        value = row.values.get(metric.name)
        if row.speed is None or value is None:
            continue
        kind = "plain" if row.plain else "folds" if row.folded_speed else "gated"
        reference = group.timed is not None and group.timed.reference == row.label
        points.append(
            CostPoint(
                row.label,
                row.speed.milliseconds,
                value.mean,
                kind,  # type: ignore[arg-type]
                *((None, None) if reference else _interval(row.speed)),
            )
        )
        if row.folded_speed is not None:
            folded = value if row.folded is None else row.folded
            time = row.folded_speed
            points.append(
                CostPoint(row.label, time.milliseconds, folded.mean, "folded", *_interval(time))
            )
    return points


def _interval(timed: TimedNetwork) -> tuple[float, float]:
    unit = timed.milliseconds / timed.ratio
    return unit * timed.low, unit * timed.high


def _legend(record: StudyRecord) -> list[tuple[str, str]]:
    rows = [row for group in record.table.groups for row in group.rows if row.speed]
    legend = []
    if any(row.plain for row in rows):
        legend.append(("diamond", "plain backbone"))
    if any(not row.plain and not row.folded_speed for row in rows):
        legend.append(("square", "its gates stay"))
    if any(row.folded_speed for row in rows):
        legend += [("circle", "its gates fold"), ("ring", "folded: no gate is left")]
    return legend


def _answer(record: StudyRecord) -> str:
    """One sentence of the first group that was timed: who costs what, who costs nothing."""
    group = next((group for group in record.table.groups if group.timed), None)
    if group is None or group.timed is None:
        return "The time of the networks is not known; what they add in size is in the table."
    plain = group.timed.reference
    others = [(r.label, r.speed) for r in group.rows if r.speed and r.label != plain]
    slower = {label: timed.ratio for label, timed in others if timed.low > 1}
    same = [label for label, timed in others if timed.low <= 1 <= timed.high]
    sentences = []
    if slower:
        ratios = (f"{100 * (r - 1):.0f}" for r in (min(slower.values()), max(slower.values())))
        verb, size = "takes" if len(slower) == 1 else "take", "–".join(dict.fromkeys(ratios))
        sentences.append(f"{', '.join(slower)} {verb} {size} % longer than {plain}")
    if same:
        sentences.append(f"no difference in time is shown for {', '.join(same)}")
    for row in group.rows:
        timed = row.folded_speed
        if timed is not None:
            shown = f"{timed.ratio:.2f} [{timed.low:.2f}, {timed.high:.2f}] of its time"
            none = ", no difference shown" if timed.low <= 1 <= timed.high else ""
            sentences.append(f"folded, {row.label} takes {shown}{none}")
    text = "; ".join(sentences) or f"no module is slower than {plain}"
    return f"On this machine {text}."


def _how(record: StudyRecord) -> str:
    texts = []
    for group in record.table.groups:
        timed = group.timed
        if timed is not None:
            threads = f"{timed.threads} thread{'s' * (timed.threads != 1)}"
            busy = f" {timed.busy[:1].upper()}{timed.busy[1:]}." if timed.busy else ""
            texts.append(
                f"{record.name_of(group)}: one network per row, the first seed's, all timed "
                f"interleaved in one process after the last run had ended ({timed.rounds} rounds "
                f"of {timed.batch} {record.metric.samples}, {threads}, "
                f"{timed.processor or timed.device}); bars are 95 % intervals of "
                f"the time relative to {timed.reference}.{busy}"
            )
    return " ".join(texts)


def _to_do(record: StudyRecord, doubtful: bool) -> str:
    """What to do about the cost; only what was shown to be good is to be deployed."""
    if doubtful:
        return "Deploy nothing from here before the alerts at the top are seen to."
    called = record.study.called
    again = f"`{called.measure(record.study.name, 'speed')}`"
    folds = [
        row for group in record.table.groups for row in group.rows if row.fold_error is not None
    ]
    good = (run for row in folds for run in deployable(record, row.label))
    run = next(good, None)
    if run is not None:
        return (
            f"Deploy {run.entry.cell.row} folded: `{called.fold(run.entry.folder)}`. For another "
            f"machine, time the networks there: {again}."
        )
    if folds:
        return (
            f"{folds[0].label} folds, but was not shown to be better than the plain network or "
            f"equivalent to a row with attention: deploy the plain network until it is."
        )
    return (
        f"If time counts, time the networks on the machine that will run them: "
        f"{again}. A constant gate (asr:NAME) costs nothing there, because it folds."
    )


def curves_of(record: StudyRecord, group: Group) -> list[MetricCurve]:
    """Return the curve of every module, the plain backbone first."""
    rows: list[StudyRow] = sorted(group.rows, key=lambda row: not row.plain)
    found = [_curve(row.label, record.of(group, row.label), record.metric) for row in rows]
    return [curve for curve in found if curve is not None]


def _curve(label: str, runs: Sequence[RunRecord], metric: Metric) -> MetricCurve | None:
    histories = [
        [metric.shown(value) for value in run.stored.curve.values if value is not None]
        for run in runs
        if run.stored.curve.values
    ]
    if not histories:
        return None
    columns = list(zip(*histories, strict=False))
    mean = [sum(column) / len(column) for column in columns]
    return MetricCurve(label, mean, [min(c) for c in columns], [max(c) for c in columns])


def _budget(record: StudyRecord, group: Group) -> Budget:
    """Return the budget of the runs of a group, which agree."""
    run = next((r for r in record.finished if r.entry.cell.group == group.name), None)
    return Budget() if run is None else run.stored.config.recipe.budget


def _how_often(record: StudyRecord) -> str:
    """`after each epoch`, `every 100 steps`."""
    budgets = [_budget(record, group) for group in record.table.groups]
    if any(budget.unit == "epoch" for budget in budgets):
        return "after each epoch"
    return " or ".join(dict.fromkeys(f"every {budget.interval} steps" for budget in budgets))


def _drops(record: StudyRecord, group: Group) -> list[int]:
    """Epochs at which the learning rate falls by more than a third."""
    run = next((r for r in record.finished if r.entry.cell.group == group.name), None)
    rates = () if run is None else run.stored.curve.rates
    return [n + 2 for n, (a, b) in enumerate(pairwise(rates)) if b < 0.67 * a]
