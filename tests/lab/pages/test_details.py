"""What a task shows: values by name, curves and pictures, whatever the task."""

from __future__ import annotations

import base64
import html
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.lab.pages.simulated import prove, simulate

import attnlab.page
from attnlab.instruments.details.section import (
    SIDE,
    Layer,
    _alike,
    _cell,
    _compared,
    _curve_figure,
    _curves,
    _masks,
    _pictures,
    details_sections,
    picture_figure,
)
from attnlab.lab.pages.write import write_study_page
from attnlab.page.parts import Cell
from attnlab.page.plot import PALETTE, SLATE, swatch, to_svg
from attnlab.results import Measured, StoredRun
from attnlab.results.details import (
    Breakdown,
    Curves,
    DetailsResult,
    Mark,
    MarkedPicture,
    MaskPicture,
)
from attnlab.results.record import read_record

GAINS = {"se": 0.8, "eca": -0.8}
X = (0.0, 0.5, 1.0)


def png(width: int, height: int) -> str:
    buffer = io.BytesIO()
    Image.fromarray(np.full((height, width, 3), 90, np.uint8)).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def details(row: str, seed: int) -> DetailsResult:
    value = {"plain": 70.0, "se": 75.0, "eca": 60.0}[row] + seed
    box = Mark(left=4, top=5, right=20, bottom=25, text="cat")
    found = Mark(left=5, top=5, right=21, bottom=24, text=f"cat of {row} 90 %")
    picture = MarkedPicture(png=png(40, 30), width=40, height=30, true=(box,), found=(found,))
    return DetailsResult(
        breakdowns=(
            Breakdown(title="By animal", unit="%", values={"cat": value, "unicorn": None}),
        ),
        curves=(
            Curves(
                title="Truth by courage",
                x_title="courage",
                y_title="truth",
                x=X,
                lines={"cat": (1.0, value / 100, 0.0)},
            ),
        ),
        pictures=(picture,) * 2,
    )


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    out = tmp_path_factory.mktemp("details")
    made = simulate(out, data=("cifar10",), gains=GAINS, seeds=3, noise=0.05, epochs=4)
    for entry in made.runs:
        found = json.loads(details(entry.cell.row, entry.seed).to_json())
        content = Measured(measurement="details", found=found).model_dump_json()
        (out / entry.folder / "measured" / "details.json").write_text(content)
        prove(out / entry.folder)
    return out, made.name


def test_tables_are_means_over_seeds(study):
    (section,) = details_sections(read_record(*study))
    table = section.parts[0]
    assert table.caption == "By animal"
    assert list(table.columns) == ["", "cat %", "unicorn %"]
    cells = {row[0].text: (row[1].text, row[1].small, row[2].text) for row in table.rows}
    # Seeds 0, 1 and 2 add so much: a mean of 1 and a standard deviation of 1.
    assert cells == {
        "plain": ("71.00", "± 1.00", "—"),
        "se": ("76.00", "± 1.00", "—"),
        "eca": ("61.00", "± 1.00", "—"),
    }


def test_curves_and_pictures_of_the_plain_and_the_best_row(study, tmp_path):
    (section,) = details_sections(read_record(*study))
    (curves,) = section.parts[3].figures
    assert curves.spec["title"] == "cat"
    lines = {(each["row"], each["x"]): each["y"] for each in curves.spec["data"]["values"]}
    assert {row for row, _ in lines} == {"plain", "se"}
    assert lines["se", 0.5] == pytest.approx(0.76)
    colours = read_record(*study).colours
    scale = curves.spec["encoding"]["color"]["scale"]
    assert dict(zip(scale["domain"], scale["range"], strict=True)) == {
        row: colours[row] for row in ("plain", "se")
    }
    page = write_study_page(study[0], study[1], tmp_path / "page.html")
    text = html.unescape(page.read_text(encoding="utf-8"))
    assert text.count("<image") >= 2
    labels = re.findall(r'aria-label="((?:true|plain|se|eca): cat[^"]*)"', text)
    assert (
        labels
        == [
            "true: cat, 4 to 20 from the left, 5 to 25 from the top",
            "plain: cat of plain 90 %, 5 to 21 from the left, 5 to 24 from the top",
            "se: cat of se 90 %, 5 to 21 from the left, 5 to 24 from the top",
        ]
        * 2
    )


def test_the_best_row_is_that_with_the_least_where_less_is_better(study):
    record = read_record(*study)
    (group,) = record.table.groups
    found = {row: [details(row, 0)] for row in ("plain", "se", "eca")}
    assert list(_compared(group, found, record.metric)) == ["plain", "se"]
    lower = record.metric.model_copy(update={"better": "lower"})
    assert list(_compared(group, found, lower)) == ["plain", "eca"]
    assert list(_compared(group, {"se": found["se"]}, lower)) == ["se"]


def test_curves_are_means_of_the_runs_that_have_them_at_the_same_places():
    def run(x: tuple[float, ...], **lines: tuple[float, ...]) -> Curves:
        return Curves(title="t", x_title="courage", y_title="truth", x=x, lines=lines)

    shape = run((0.0, 1.0), cat=(0.2, 0.4), dog=(0.9, 0.9))
    runs = [shape, run((0.0, 1.0), cat=(0.4, 0.8)), run((0.0, 2.0), cat=(0.9, 0.9))]
    spec = _curve_figure(shape, "cat", {"se": runs, "eca": [run((0.0, 1.0))]}, {"se": "red"})
    values = [(each["row"], each["x"], each["y"]) for each in spec["data"]["values"]]
    assert values == [("se", 0, pytest.approx(0.3)), ("se", 1, pytest.approx(0.6))]
    axes = spec["encoding"]
    assert (spec["title"], axes["x"]["title"], axes["y"]["title"]) == ("cat", "courage", "truth")
    assert axes["color"]["scale"] == {"domain": ["se"], "range": ["red"]}
    assert axes["y"]["scale"] == {"domain": [0, 1]}  # shares
    assert (spec["width"], spec["height"]) == (170, 130)
    assert spec["mark"] == {"type": "line", "strokeWidth": 2}


def test_every_set_of_curves_has_its_heading_and_a_picture_of_each_line():
    run = details("se", 0)
    (one,) = run.curves
    other = replace(one, title="Love by age", lines={"dog": one.lines["cat"], "cat": (0, 0, 0)})
    parts = _curves({"se": [replace(run, curves=(one, other))]}, {"se": "red"})
    assert [part.text for part in parts[::3]] == ["Truth by courage", "Love by age"]
    assert [[each.spec["title"] for each in part.figures] for part in parts[2::3]] == [
        ["cat"],
        ["dog", "cat"],
    ]


def test_what_another_task_shows_has_no_place_in_the_table():
    own, other = details("se", 0), details("eca", 0)
    other = replace(other, breakdowns=(replace(other.breakdowns[0], title="By plant"),))
    assert _alike({"plain": [own, other], "eca": [other], "se": [own]}) == {
        "plain": [own],
        "se": [own],
    }
    assert _alike({"plain": []}) == {}


def test_a_cell_is_the_mean_of_the_seeds_that_have_a_value():
    shape = Breakdown(title="By animal", unit="%", digits=1, values={})
    assert _cell([1.0, None, 4.0], shape) == Cell("2.5", "± 2.1", 2.5)  # 3 / √2
    assert _cell([3.0, None], shape) == Cell("3.0", "", 3)
    assert _cell([None], shape) == Cell("—")


def test_pictures_without_a_box_are_explained():
    sure = details("se", 0)
    nothing = tuple(replace(each, found=()) for each in sure.pictures)
    unsure = replace(sure, pictures=nothing)
    colours = {"plain": SLATE, "se": PALETTE[0]}
    _, text, *_ = _pictures({"plain": [unsure], "se": [sure]}, colours)
    assert text.text.endswith("one half. plain found none in these images.")
    _, text, *_ = _pictures({"plain": [unsure], "se": [unsure]}, colours)
    assert text.text.endswith("plain and se found none in these images.")
    _, text, *_ = _pictures({"plain": [sure], "se": [sure]}, colours)
    assert text.text.endswith("at least one half.")


def test_masks_say_what_share_of_the_pixels_is_wrong():
    """Images beside their classes, and for each row of the study what it found and its errors."""

    def run(*wrong: float) -> DetailsResult:
        names = {"image": "i", "true": "t", "found": "f", "errors": "e"}
        masks = [MaskPicture(**names, width=20, height=10, wrong=each) for each in wrong]
        return DetailsResult(masks=tuple(masks))

    heading, _, grid = _masks({"plain": [run(0.25, 0.5)], "se": [run(0.125)]})
    assert heading.text == "Some images"
    assert grid.columns == ["image", "true", "plain", "plain, errors", "se", "se, errors"]
    (row,) = grid.rows  # only images that both have
    assert [each.text for each in row] == [
        "test image",
        "true classes",
        "plain, classes",
        "plain: 25.0 % of the pixels wrong",
        "se, classes",
        "se: 12.5 % of the pixels wrong",
    ]
    assert [each.uri[-1] for each in row] == ["i", "t", "f", "e", "f", "e"]
    assert {(each.width, each.height) for each in row} == {(SIDE, SIDE / 2)}  # enlarged
    assert _masks({"plain": [run()], "se": [run(0.1)]}) == []


def test_boxes_lie_where_they_are_on_the_picture():
    """A box of the right upper quarter, in the places of the image itself."""
    layer = Layer("found", SLATE, [(20.0, 0.0, 40.0, 15.0, "cat")])
    svg = to_svg(picture_figure(png(40, 30), (40, 30), [layer]))
    place, width, height = re.search(
        r'<image [^>]*transform="translate\((0,0)\)" width="(\d+)" height="([\d.]+)"', svg
    ).groups()
    half, quarter = float(width) / 2, float(height) / 2
    assert (place, half / quarter) == ("0,0", pytest.approx(40 / 30))
    assert f'd="M{half:g},0h{half:g}v{quarter:g}h-{half:g}Z"' in svg


def test_true_boxes_are_dashed_and_others_have_a_rim_of_twice_their_width():
    box = [(20.0, 0.0, 40.0, 15.0, "cat")]
    layers = [Layer("true", "#ffffff", box, dashed=True), Layer("found", SLATE, box)]
    _, true, found = picture_figure(png(40, 30), (40, 30), layers)["layer"]
    (dashed,) = true["layer"]
    assert dashed["mark"]["strokeDash"] == [3, 2]
    rim, line = (each["mark"] for each in found["layer"])
    assert (rim["stroke"], line["stroke"]) == ("#ffffff", SLATE)
    assert rim["strokeWidth"] == 2 * line["strokeWidth"] == 3.2
    assert not any(mark["filled"] for mark in (dashed["mark"], rim, line))
    assert rim["aria"] is False


def test_a_figure_is_enlarged_to_150_pixels_and_never_made_smaller():
    small, large = (
        picture_figure(png(40, 30), size, [], title="t") for size in ((40, 30), (300, 100))
    )
    assert (small["width"], small["height"]) == (150, 112.5)
    assert (large["width"], large["height"], large["title"]) == (300, 100, "t")
    assert picture_figure(png(40, 30), (40, 30), [])["title"] is None


def test_every_row_has_a_swatch_of_its_colour():
    style = (Path(attnlab.page.__file__).parent / "templates/page.css").read_text("utf-8")
    for colour in (*PALETTE, SLATE):
        assert f".legend .{swatch(colour)} {{ background: {colour}; }}" in style


def test_a_task_that_shows_nothing_has_no_section(tmp_path):
    made = simulate(tmp_path, data=("cifar10",), gains=GAINS, seeds=2, epochs=4)
    record = read_record(tmp_path, made.name)
    assert details_sections(record) == []
    assert StoredRun(tmp_path / made.runs[0].folder).measured("details") is None
