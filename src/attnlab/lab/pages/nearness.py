"""The part of a study's page about the best network as the ground truth: who is near to it?"""

from __future__ import annotations

from collections.abc import Mapping

from attnlab._errors import InputError
from attnlab.instruments.trajectory.result import TrajectoryResult
from attnlab.lab.nearness import FEWEST_ROWS, Nearness, RowNearness, nearness
from attnlab.page.parts import Cell, Figure, Folded, Part, Section, Table, number_cell
from attnlab.page.plot import FULL, Spec, row_colours
from attnlab.results.record import StudyRecord
from attnlab.results.table import Group, PairedDifference

_TITLE = "Who is near the best network?"
_LEAD = (
    "The best row stands for the ground-truth trajectory, which nobody has. 1 − CKA says how far "
    "the states after each step are from its own, whatever their basis: 0 is a rotated copy. The "
    "floor is what two seeds of the best row are apart; only what lies beyond it counts. Only "
    "networks of different seeds are compared. Which row is best was found on the same runs."
)


def nearness_sections(record: StudyRecord) -> list[Section]:
    """One section per group whose trajectories were kept; none where `measure.trajectory` is 0."""
    sections = []
    for group in record.table.groups:
        try:
            near = group_nearness(record, group)
        except InputError as error:  # measured on other images, or networks with other steps
            again = record.study.called.measure(record.study.name, "trajectory")
            to_do = f"Measure all of them again: `{again}`."
            sections.append(Section(_TITLE, _LEAD, [], str(error), to_do))
            continue
        if near is not None:
            sections.append(_section(record, group, near))
    return sections


def group_nearness(record: StudyRecord, group: Group) -> Nearness | None:
    """The nearness of one group's rows, as far as their trajectories are stored."""
    trajectories: dict[str, dict[int, TrajectoryResult]] = {}
    values: dict[str, dict[int, float]] = {}
    for row in group.rows:
        for run in record.of(group, row.label):
            kept, result = run.measured(TrajectoryResult), run.result
            value = None if result is None else result.values[record.metric.name]
            if kept is not None and value is not None:
                trajectories.setdefault(row.label, {})[run.entry.seed] = kept
                values.setdefault(row.label, {})[run.entry.seed] = value
    better = record.metric.better == "higher"
    return nearness(trajectories, values, higher_is_better=better, level=record.table.level)


def _section(record: StudyRecord, group: Group, near: Nearness) -> Section:
    metric = record.metric
    columns = ["module", metric.title, "1 − CKA", "beyond the floor", "NSI", "beyond the floor "]
    rows = [
        [
            Cell(row.label + (" (best)" if row.label == near.best else "")),
            Cell(metric.text(row.value), order=row.value),
            number_cell(row.distance, "{:.3f}"),
            _beyond(row.beyond, "{:+.3f}"),
            number_cell(row.nsi_distance, "{:.3f}"),
            _beyond(row.nsi_beyond, "{:+.3f}"),
        ]
        for row in near.rows
    ]
    parts: list[Part | Folded] = [
        Figure(nearness_figure(near, record.colours), wide=True),
        Folded(f"Numbers, {record.name_of(group)}", [Table(columns, rows)]),
    ]
    return Section(_TITLE, _LEAD, parts, _answer(near))


def _answer(near: Nearness) -> str:
    others = [row for row in near.rows if row.label != near.best]
    beyond = [row.label for row in others if row.beyond is not None and (row.beyond.low or 0) > 0]
    within = [row.label for row in others if row.label not in beyond]
    said = [f"{near.best} has the best mean."]
    if beyond:
        said.append(f"Farther from it than its own seeds are from each other: {', '.join(beyond)}.")
    if within:
        said.append(f"Not shown to be farther than that: {', '.join(within)}.")
    if not near.tests:
        said.append(
            f"Whether nearness goes with the result takes at least {FEWEST_ROWS} rows beside it."
        )
        return " ".join(said)
    test = near.tests[0]
    verdict = "compatible with no relation" if test.kendall_p >= 0.05 else "a relation of ranks"
    said.append(
        f"Distance and result over {len(others)} rows: Kendall τ = {test.kendall:+.2f}, "
        f"p = {test.kendall_p:.2g}, {verdict}."
    )
    return " ".join(said)


def _beyond(found: PairedDifference | None, form: str) -> Cell:
    if found is None:
        return Cell("the floor")
    if found.low is None or found.high is None:
        return Cell(form.format(found.mean), small=found.note, order=found.mean)
    interval = f"[{form.format(found.low)}, {form.format(found.high)}]"
    return Cell(form.format(found.mean), small=interval, order=found.mean)


def nearness_figure(near: Nearness, colours: Mapping[str, str] | None = None) -> Spec:
    """1 − CKA with the best row after every step; dashed, the floor."""
    values = [_point(near, row, number) for row in near.rows for number in range(len(near.steps))]
    if colours is None:
        colours = row_colours((row.label, row.label == near.best) for row in near.rows)
    shown = {_named(near, row): colours[row.label] for row in near.rows}
    scale = {"domain": [*shown], "range": [*shown.values()]}
    dashes = {"domain": [False, True], "range": [[1, 0], [5, 3]]}
    floor = {"field": "floor", "type": "nominal", "legend": None, "scale": dashes}
    return {
        "width": FULL,
        "height": 240,
        "data": {"values": values},
        "encoding": {
            "x": {"field": "step", "type": "nominal", "sort": None, "axis": {"labelAngle": 0}},
            "y": {"field": "distance", "type": "quantitative", "title": "1 − CKA with the best"},
            "color": {
                "field": "module",
                "type": "nominal",
                "title": None,
                "sort": None,
                "scale": scale,
                "legend": {"orient": "top", "columns": 4},
            },
        },
        "layer": [
            {"mark": {"type": "line"}, "encoding": {"strokeDash": floor}},
            {
                "mark": {"type": "point", "filled": True, "size": 30},
                "encoding": {"description": {"field": "text"}},
            },
        ],
    }


def _point(near: Nearness, row: RowNearness, number: int) -> Spec:
    floor = row.label == near.best
    name = _named(near, row)
    step, distance = near.steps[number], row.by_step[number]
    text = f"{name}, step {step}: {distance:.3f}"
    return {"module": name, "step": step, "distance": distance, "floor": floor, "text": text}


def _named(near: Nearness, row: RowNearness) -> str:
    return f"{row.label}, its own seeds" if row.label == near.best else row.label
