"""Specifications of figures: pure functions of their data, drawn as they should be."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from scipy.stats import kendalltau
from tests.lab.pages.simulated import REGRESSION, TOP1, stiffness_content

from attnlab.instruments import block_figures
from attnlab.instruments.place.section_figures import PlacedPoint, placements_figure
from attnlab.instruments.stiffness import StiffestStep, StiffnessResult
from attnlab.instruments.stiffness.figures import surface_multiple
from attnlab.instruments.stiffness.section import (
    against_plain,
    evenness,
    rank_sentence,
    stiffest_counts,
)
from attnlab.lab.pages import figures
from attnlab.lab.pages.cost import CostPoint, cost_figure
from attnlab.page.plot import BLUE, GREY, RED, row_colours, to_svg
from attnlab.page.raster import raster_figure, raster_uri, viridis
from attnlab.page.scatter import _label_boxes, _shared, label_sides, scatter
from attnlab.page.tables import latex

ROWS = [
    figures.ForestRow("se", 0.4, 0.2, 0.6, "gain", {0: 0.3, 1: 0.5}),
    figures.ForestRow("ie", -0.4, -0.6, -0.2, "loss", {0: -0.3, 1: -0.5}),
    figures.ForestRow("eca", 0.1, -0.2, 0.4, "within noise", {0: 0.0, 1: 0.2}),
    figures.ForestRow("sge", 0.2, 0.1, 0.3, "before correction only", {0: 0.15, 1: 0.25}),
    figures.ForestRow("srm", 0.2, None, None, "no interval", {0: 0.2}),
]


def measured(**changed: object) -> StiffnessResult:
    """A measurement, with some fields changed."""
    content = stiffness_content(np.random.default_rng(0), ["1.0", "1.1", "2.1"], [], 0.0)
    content.pop("format")
    return replace(StiffnessResult.from_content(content), **changed)


def _places(svg: str, label: str) -> tuple[float, float]:
    found = re.search(
        rf'aria-label="{re.escape(label)}[^"]*"[^>]*transform="translate\(([^)]*)\)"', svg
    )
    assert found, label
    x, y = found[1].split(",")
    return float(x), float(y)


def test_forest_marks_lie_where_their_values_say():
    svg = to_svg(figures.forest_figure(ROWS, TOP1))
    centres = {row.module: _places(svg, f"{row.module}: ") for row in ROWS}
    low, _ = _places(svg, "se, seed 0")
    high, _ = _places(svg, "se, seed 1")
    # Places are linear in the values: +0.4 is halfway between the seeds +0.3 and +0.5.
    assert centres["se"][0] == pytest.approx((low + high) / 2, abs=1e-6)
    scale = (high - low) / 0.2
    assert centres["se"][0] - centres["ie"][0] == pytest.approx(0.8 * scale, rel=1e-6)
    assert [m for m, _ in sorted(centres.items(), key=lambda item: item[1][1])] == [
        row.module for row in ROWS
    ]


def test_forest_colours_say_what_holds():
    svg = to_svg(figures.forest_figure(ROWS, TOP1))
    fills = dict(re.findall(r'aria-label="(\w+): [^"]*"[^>]*fill="([^"]+)"', svg))
    assert fills == {"se": BLUE, "ie": RED, "eca": GREY, "sge": "white", "srm": GREY}
    assert "sge: +0.20 pt [+0.10, +0.30], n = 2, before correction only" in svg
    assert "srm: +0.20 pt, n = 1, no interval" in svg


def test_axes_and_marks_are_in_the_metric_and_say_its_direction():
    metric = REGRESSION.metrics[0]
    row = figures.ForestRow("se", -0.0088, -0.0126, -0.005, "gain", {0: -0.0088})
    cost, curve = CostPoint("se", 2.0, 0.3035, "gated"), [0.4, 0.3035]
    for spec, texts in {
        "forest": (
            figures.forest_figure([row], metric),
            (
                "Δ mean |error|, paired by seed (mm)",
                "se: -0.0088 mm [-0.0126, -0.0050], n = 1, gain",
            ),
        ),
        "cost": (
            cost_figure([cost], metric),
            ("mean |error| mm, mean over seeds", "se, does not fold: 0.3035 mm at 2 ms per image"),
        ),
        "curves": (
            figures.curves_figure([figures.MetricCurve("se", curve, curve, curve)], [], metric),
            ("mean |error| mm, test images", "se: 0.3035 mm after epoch 2"),
        ),
        "stiffness": (
            block_figures.stiffness_figure([("se", 1.5, 0.3035)], metric),
            ("mean |error| mm, mean over seeds", "se: TNS 1.5, 0.3035 mm"),
        ),
    }.values():
        svg = to_svg(spec)
        for text in (*texts, "lower is better"):
            assert text in svg
        assert "%" not in svg
    assert "lower is better" not in to_svg(figures.forest_figure(ROWS, TOP1))


def test_cost_marks_fold_by_shape():
    points = [
        CostPoint("plain", 1.8, 91.0, "plain"),
        CostPoint("se", 2.0, 92.0, "gated", 1.9, 2.1),
        CostPoint("asr:se", 2.1, 92.1, "folds", 2.0, 2.2),
        CostPoint("asr:se", 1.8, 92.1, "folded", 1.7, 1.9),
    ]
    svg = to_svg(cost_figure(points, TOP1))
    for text in (
        "plain, no gate: 91.00 % at 1.8 ms per image",
        "se, does not fold: 92.00 % at 2 ms [1.9, 2.1] per image",
        "asr:se, before folding: 92.10 % at 2.1 ms [2, 2.2] per image",
        "asr:se, folded: 92.10 % at 1.8 ms [1.7, 1.9] per image",
    ):
        assert f'aria-label="{text}"' in svg
    drawn_by = {"L": "diamond", "h": "square", "A": "circle"}
    marks = re.findall(r'aria-label="([^"]*?): [\d.]+ %[^>]* d="M[^LhA]*([LhA])', svg)
    assert {name: drawn_by[letter] for name, letter in marks} == {
        "plain, no gate": "diamond",
        "se, does not fold": "square",
        "asr:se, before folding": "circle",
        "asr:se, folded": "circle",
    }
    places = [_places(svg, f"{name}: ") for name in ("plain, no gate", "se, does not fold")]
    places.append(_places(svg, "asr:se, folded: "))
    assert places[0][0] == places[2][0] < places[1][0]
    assert ">asr:se, folded<" in svg
    # The bar of SE reaches from 1.9 to 2.1 ms, around its mark.
    scale = (places[1][0] - places[0][0]) / 0.2
    ends = [places[0][0] + scale * (ms - 1.8) for ms in (1.9, 2.1)]
    drawn = [
        (float(x), float(x) + float(length))
        for x, length in re.findall(
            r'<line transform="translate\(([\d.]+),[\d.]+\)" x2="([\d.-]+)" y2="0"', svg
        )
    ]
    assert any(sorted(line) == pytest.approx(ends, abs=0.01) for line in drawn)


def test_no_time_is_below_zero_where_intervals_are_wide():
    points = [CostPoint("plain", 1.0, 91.0, "plain"), CostPoint("se", 1.5, 92.0, "gated", 0.6, 7)]
    texts = re.findall(r">([−\d.]+)</text>", to_svg(cost_figure(points, TOP1)))
    assert "0" in texts
    assert not [text for text in texts if text.startswith("−")]


def test_labels_are_clear_where_an_interval_takes_the_room():
    """Far apart by themselves; beside an interval a hundred times as wide, one below the other."""
    points, names = [(0.0, 0.0), (1.0, 0.0)], ["plain", "se"]
    assert label_sides(points, names) == ["above", "above"]
    sides = label_sides(points, names, [0.0, 100.0])
    assert sides[0] != sides[1]


@pytest.mark.parametrize("runs", [1, 2, 3])
def test_runs_and_epochs_are_counted_in_whole_numbers(runs):
    curve = figures.MetricCurve("plain", *([y] * (runs + 1) for y in (40, 30, 50)))
    bars = block_figures.counts_figure([("1.0", runs), ("1.1", 0)], runs)
    for spec, most in ((figures.curves_figure([curve], [], TOP1), runs + 1), (bars, runs)):
        svg = to_svg(spec)
        assert f">{most}</text>" in svg
        assert ">1.5</text>" not in svg
    assert not re.search(r">0\.5</text>", to_svg(bars))


def test_labels_of_points_in_one_place_go_to_different_sides():
    sides = label_sides([(0.0, 0.0), (1.0, 1.0), (1.0, 1.0)])
    assert sides[1] != sides[2]


def test_where_labels_go_does_not_depend_on_where_the_figure_begins():
    points, names = [(0.0, 0.0), (1.0, 0.0)], ["se", "ie"]
    for begins in (0.0, 1000.0, -1000.0):
        moved = [(x + begins, y + begins) for x, y in points]
        assert label_sides(moved, names, [begins, begins + 4]) == ["above", "above"]


def test_a_label_covers_no_point_that_comes_after_it():
    """The second is where the first's label would be: 0.075 of 160 pixels above it."""
    points = [(0.0, 0.0), (0.0, 0.075), (1.0, 1.0)]
    assert label_sides(points, ["se", "eca", "ie"])[:2] == ["below", "above"]


def test_labels_lie_beside_their_points_and_covered_areas_are_those_of_both():
    """12 pixels above and below, 8 to the sides, 12 high."""
    boxes = _label_boxes((100, 50), 30)
    assert boxes == {
        "above": (85, 32, 115, 44),
        "below": (85, 56, 115, 68),
        "right": (108, 44, 138, 56),
        "left": (62, 44, 92, 56),
    }
    assert _shared((0, 0, 10, 6), (7, -2, 20, 4)) == 3 * 4
    assert _shared((7, -2, 20, 4), (0, 0, 10, 6)) == 3 * 4
    for clear in ((10, 0, 20, 6), (0, 6, 10, 9), (-5, -5, -1, -1), (20, 20, 30, 30)):
        assert _shared((0, 0, 10, 6), clear) == 0


def test_a_label_goes_to_the_one_side_that_is_free():
    """Others lie where it would be: 12 pixels are 0.075 of the height, 30 are a fifth of the
    width."""
    corners = [(-1.0, -1.0), (1.0, 1.0)]
    places = {"above": (0, 0.15), "below": (0, -0.15), "right": (0.4, 0), "left": (-0.4, 0)}
    for free in places:
        others = [place for side, place in places.items() if side != free]
        names = ["squeeze", *["x"] * 5]
        assert label_sides([(0, 0), *others, *corners], names)[0] == free


def test_points_have_their_names_their_colours_and_room():
    values = [
        {"row": "se", "cost": 2.0, "gain": 1.0, "text": "a", "low": 1.9, "high": 2.4},
        {"row": "eca", "cost": 5.0, "gain": 0.0, "text": "b", "low": 4.0, "high": 8.0},
    ]
    spec = scatter(values, ("cost", "ms"), ("gain", ["pt", "paired"]), "t")
    assert [value["side"] for value in spec["data"]["values"]] == ["above", "above"]
    x, y = (spec["encoding"][axis] for axis in "xy")
    assert (x["field"], x["title"], y["field"], y["title"]) == (
        *("cost", "ms", "gain", ["pt", "paired"]),
    )
    assert x["scale"] == {"zero": True, "nice": True, "domainMax": pytest.approx(8.8)}
    assert y["scale"] == {"zero": False, "nice": True, "padding": 14}
    marks, labels = spec["layer"]
    assert "color" not in marks["encoding"]
    assert labels["encoding"] == {"text": {"field": "row"}}
    far = [{**value, "low": value["low"] + 9, "high": value["high"] + 9} for value in values]
    coloured = [{**value, "colour": "red"} for value in far]
    spec = scatter(coloured, ("cost", "ms"), ("gain", "pt"), "")
    assert spec["encoding"]["x"]["scale"] == {"zero": False, "nice": True, "padding": 34}
    assert spec["layer"][0]["encoding"]["color"]["field"] == "colour"
    assert spec["title"] is None
    svg = to_svg(spec)
    assert [_places(svg, text)[0] < _places(svg, "b")[0] for text in "ab"] == [True, False]


def test_curves_have_one_line_each_and_a_rule_per_drop():
    curves = [
        figures.MetricCurve(name, [1, 2, 3], [0, 1, 2], [2, 3, 4]) for name in ("plain", "se")
    ]
    spec = figures.curves_figure(curves, [2, 3], TOP1)
    assert spec["layer"][0]["data"]["values"] == [{"drop": 2}, {"drop": 3}]
    svg = to_svg(spec)
    assert "se: 3.00 % after epoch 3" in svg
    assert len(re.findall(r"after epoch 3", svg)) == 2


def test_heat_map_has_a_mark_per_value():
    cells = [(row, f"1.{b}", float(b)) for row in ("plain", "se") for b in range(4)]
    svg = to_svg(block_figures.heat_figure(cells, legend="NSI"))
    assert len(re.findall(r'aria-label="(?:plain|se), block 1\.\d: NSI \d"', svg)) == 8


def test_heat_map_sorts_blocks_that_its_first_row_lacks():
    cells = [("step", "1.9", 1.0), ("step", "2.1", 1.0), ("se", "2.0", 1.0), ("se", "1.10", 1.0)]
    spec = block_figures.heat_figure(cells, legend="ratio")
    assert spec["encoding"]["x"]["sort"] == ["1.9", "1.10", "2.0", "2.1"]
    assert spec["encoding"]["y"]["sort"] == ["step", "se"]


def test_surfaces_are_cut_where_nothing_is_left_and_share_their_colours():
    degrees = tuple(0.5 * n for n in range(9))
    surface = [[1.0 if i < 2 and j < 3 else 0.0 for j in range(9)] for i in range(9)]
    half = [[value / 2 for value in row] for row in surface]
    rows = surface_multiple(
        {
            name: measured(
                relative_degrees=degrees,
                absolute_degrees=degrees,
                tns=1.5,
                surface=values,
                proportion=values,
            )
            for name, values in {"plain": surface, "se": half}.items()
        }
    )
    assert [len(row["hconcat"]) for row in rows] == [2, 2]
    assert to_svg(rows[0]).count(">δ(M)<") == 1  # one legend for all
    for spec in (spec for row in rows for spec in row["hconcat"]):
        axes = spec["layer"][1]["encoding"]
        # Two and three fields are not empty, one more is shown: up to the degrees 1.5 and 2.
        assert axes["x"]["scale"]["domain"] == [0.0, 1.5]
        assert axes["y"]["scale"]["domain"] == [0.0, 2.0]
        assert axes["color"]["scale"]["domain"] == [0.0, 1.0]


def test_placements_figure_shows_every_row():
    points = [
        PlacedPoint("all", 9, 0.4, None, None, "se: 9 gates"),
        PlacedPoint("stiffest", 3, 0.3, 0.1, None, "stiff"),
        *(PlacedPoint("random", 3, i, None, None, f"r{i}") for i in range(4)),
    ]
    svg = to_svg(placements_figure(points, "Δ top-1 pt"))
    for text in ("se: 9 gates", "stiff", "r0", "r1", "r2", "r3", "Δ top-1 pt", "number of gates"):
        assert text in svg


def test_picture_has_the_colours_of_its_values():
    uri = raster_uri(np.array([[0.0, 1.0], [np.nan, 0.5]]), 0.0, 1.0)
    image = Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))).convert("RGB")
    assert image.size == (2, 2)
    assert image.getpixel((0, 0)) == (68, 1, 84)
    assert image.getpixel((1, 0)) == (253, 231, 37)
    assert image.getpixel((0, 1)) == (160, 160, 160)
    assert image.getpixel((1, 1)) == (33, 145, 140)


def test_colours_grow_brighter_with_the_value():
    colours = viridis(np.linspace(0, 1, 256)).astype(float)
    assert (np.diff(colours @ [0.2126, 0.7152, 0.0722]) >= -1).all()


def test_colours_are_those_of_the_drawing_program():
    """At nine places to two of 255, and halfway between them to fifteen."""
    places = np.linspace(0, 1, 17)
    colour = {"field": "v", "type": "quantitative", "scale": {"scheme": "viridis"}}
    spec = {
        "data": {"values": [{"v": v, "n": n} for n, v in enumerate(places)]},
        "mark": "rect",
        "encoding": {"x": {"field": "n", "type": "ordinal"}, "color": colour},
    }
    drawn = re.findall(r'aria-roledescription="rect mark"[^>]*fill="rgb\(([^)]*)\)"', to_svg(spec))
    wanted = np.array([[int(each) for each in fill.split(",")] for fill in drawn])
    assert wanted.shape == (17, 3)
    difference = np.abs(viridis(places).astype(int) - wanted)
    assert difference[::2].max() <= 2
    assert difference.max() <= 15


def pixels_of(spec: dict) -> np.ndarray:
    uri = spec["data"]["values"][0]["url"]
    with Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))) as image:
        return np.asarray(image.convert("RGB"))


@pytest.mark.parametrize("from_bottom", [False, True])
def test_rows_of_a_raster_begin_on_top_or_at_the_bottom(from_bottom):
    """Of values from 2 to 6, which are the ends of the colours unless others are given."""
    grid, axes = np.array([[2.0, 4.0], [6.0, np.inf]]), {"x": ("a", 0, 2), "y": ("b", 0, 2)}
    spec = raster_figure(grid, description="d", legend="l", y_from_bottom=from_bottom, **axes)
    pixels = pixels_of(spec)[::-1] if from_bottom else pixels_of(spec)
    colours = [[(68, 1, 84), (33, 145, 140)], [(253, 231, 37)] * 2]
    assert pixels.tolist() == [[list(each) for each in row] for row in colours]
    encoding = spec["layer"][1]["encoding"]
    assert encoding["color"]["scale"]["domain"] == [2, 6]
    assert encoding["y"]["scale"]["reverse"] is not from_bottom
    assert [each["value"] for each in spec["data"]["values"]] == [2, 6]
    wider = raster_figure(grid, description="d", legend="l", low=-2, high=6, **axes)
    assert pixels_of(wider)[0].tolist() == [[33, 145, 140], viridis(np.array(0.75)).tolist()]
    empty = raster_figure(np.full((1, 1), np.nan), description="d", legend="l", **axes)
    assert empty["layer"][1]["encoding"]["color"]["scale"]["domain"] == [0, 1]
    assert pixels_of(empty).tolist() == [[[160, 160, 160]]]


def test_axes_of_a_raster():
    """Along a single row nothing is counted; where something is, in whole numbers."""

    def axis(low: float, high: float, **given: bool) -> dict:
        axes = {"x": ("image", 0, 3), "y": ("share", low, high)}
        spec = raster_figure(np.eye(3), description="d", legend="l", title="t", **axes, **given)
        assert spec["title"] == "t"
        return spec["layer"][1]["encoding"]

    assert axis(0, 4)["y"]["axis"] == {"grid": False, "tickCount": 4, "tickMinStep": 1}
    assert axis(0, 0.5)["y"]["axis"] == {"grid": False, "tickCount": 4}
    assert axis(0.5, 1.5)["y"]["axis"] == {"grid": False, "tickCount": 4}
    assert axis(3, 4)["y"]["axis"] == {"grid": False, "labels": False, "ticks": False}
    found = axis(0, 4)
    assert (found["y"]["title"], found["x"]["title"]) == ("share", "image")
    assert found["color"]["legend"] == {"gradientLength": 140, "tickCount": 3}
    hidden = axis(0, 4, has_y_axis=False, has_legend=False)
    assert hidden["y"]["title"] is None
    assert hidden["y"]["axis"].items() >= {"labels": False, "ticks": False}.items()
    assert hidden["color"]["legend"] is None


def test_raster_says_what_it_shows():
    axes = {"x": ("channel", 0, 4), "y": ("image", 0, 3)}
    svg = to_svg(raster_figure(np.zeros((3, 4)), description="three images", legend="gate", **axes))
    assert 'aria-label="three images"' in svg
    assert len(re.findall("<image ", svg)) == 1


@pytest.mark.parametrize("number", [3, 4, 10])
def test_rank_sentence_gives_the_exact_p(number):
    values = list(range(number))
    reverse = [-v for v in values]
    # Of n! orders two have |τ| = 1.
    p = 2 / np.prod(np.arange(1, number + 1))
    assert rank_sentence("TNS", values, reverse) == (
        f"TNS: Kendall τ = -1.00, exact p = {p:.2g}, n = {number}"
    )


def test_rank_sentence_with_ties_and_without_information():
    tied = rank_sentence("parameters", [1, 1, 2, 3], [1.0, 2.0, 3.0, 4.0])
    assert f"τ = {kendalltau([1, 1, 2, 3], [1, 2, 3, 4]).statistic:+.2f}, exact p" in tied
    assert rank_sentence("baseline depth", [9, 9, 9], [1.0, 2.0, 3.0]) == (
        "baseline depth: the same for all 3, so it ranks nothing"
    )
    assert rank_sentence("TNS", [1, 2], [1, 2]) == "TNS: 2 networks, too few to rank"


def test_the_stiffest_block_is_what_each_measurement_says():
    """Not the largest mean NSI, nor a block that does not count."""
    blocks = {"1.0": (9.0, False), "1.1": (1.0, True), "2.1": (2.0, True)}
    step = measured().nsi[0]
    steps = tuple(
        replace(step, label=label, mean=mean, kept=kept) for label, (mean, kept) in blocks.items()
    )
    first, second, neither = (
        measured(nsi=steps, stiffest=label and StiffestStep(label, f"layer{label}", 0.6))
        for label in ("1.1", "2.1", None)  # None where no step is kept
    )
    assert stiffest_counts([first, first]) == [("1.0", 0), ("1.1", 2), ("2.1", 0)]
    assert stiffest_counts([first, second]) == [("1.0", 0), ("1.1", 1), ("2.1", 1)]
    assert stiffest_counts([neither, neither]) == []
    assert stiffest_counts([neither, second]) == [("1.0", 0), ("1.1", 0), ("2.1", 1)]


def test_latex_escapes():
    assert latex("se_1 & 50 % ± {x}") == r"se\_1 \& 50 \% $\pm$ \{x\}"


def test_a_module_has_one_colour_on_all_figures():
    colours = row_colours([("plain", True), ("se", False), ("asr:se", False)])
    assert len(set(colours.values())) == 3
    points = [
        CostPoint("se", 2.0, 92.0, "gated", 1.9, 2.1),
        CostPoint("plain", 1.8, 91.0, "plain"),
    ]
    cost = cost_figure(points, TOP1, "", colours)["data"]["values"]
    assert [value["edge"] for value in cost] == [colours["se"], colours["plain"]]
    tns = block_figures.stiffness_figure([("se", 1.5, 0.3)], TOP1, "", colours)
    assert tns["data"]["values"][0]["colour"] == colours["se"]
    curves = [figures.MetricCurve("se", [1, 2], [0, 1], [2, 3])]
    scale = figures.curves_figure(curves, [], TOP1, colours=colours)["layer"][1]["encoding"]
    assert scale["color"]["scale"] == {"domain": ["se"], "range": [colours["se"]]}


def test_long_labels_on_one_line_do_not_cover_each_other():
    sides = label_sides([(0.0, 0.0), (0.3, 0.0), (1.0, 1.0)], ["ASR(SE), folded", "ASR(SE)", "se"])
    assert sides[0] != sides[1]


def test_tns_that_can_only_be_zero_is_not_called_even():
    assert against_plain({"se": 0.0, "eca": 0.0}, 0.0, " on shapes") == (
        "TNS is 0 for every network on shapes, as it is whatever the weights where no stage counts "
        "two steps: it does not say how even they are."
    )
    found = against_plain({"se": 0.1}, 0.0)
    assert found == "Against the plain network (TNS 0), the steps are less even with se 0.1."


def test_steps_of_the_same_figure_are_as_even():
    assert evenness({"se": 0.0}, 0.0) == "as even with se 0"
    found = evenness({"se": 0.1, "eca": 0.5, "ie": 0.30001}, 0.3)
    assert found == "more even with se 0.1; less even with eca 0.5; as even with ie 0.3"


def test_labels_are_moved_to_the_side_that_they_are_filtered_by():
    """Up is a negative dy; to the right the text begins at the point, to the left it ends there."""
    values = [{"module": name, "x": 1.0, "y": 2.0, "text": name} for name in "abcd"]
    spec = scatter(values, ("x", "x"), ("y", "y"), "")
    moved = {
        layer["transform"][0]["filter"]: {
            name: layer["mark"][name] for name in ("dx", "dy", "align") if name in layer["mark"]
        }
        for layer in spec["layer"][1:]
    }
    assert moved == {
        "datum.side == 'above'": {"dy": -10},
        "datum.side == 'below'": {"dy": 12},
        "datum.side == 'right'": {"dx": 8, "align": "left"},
        "datum.side == 'left'": {"dx": -8, "align": "right"},
    }
