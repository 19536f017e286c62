"""The pictures of a study on its page, and how far they are apart."""

from __future__ import annotations

import io
import re
from base64 import b64decode
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.lab.pages.browser import browsing
from tests.lab.study._small import HereExecutor

from attnlab.instruments.pictures import PicturesResult
from attnlab.instruments.pictures.section import pictures_section
from attnlab.lab.pages.write import write_study_page
from attnlab.lab.study import Study, run_study
from attnlab.page.parts import Heading, Table, ThumbnailGrid
from attnlab.results.record import StudyRecord, read_record

STUDY = Study(
    name="styles",
    task="style-filters",
    data={"name": "photos", "size": 24},
    backbone={"name": "fast_style", "options": {"width": 4, "blocks": 1, "norm": "batch"}},
    attention=[
        {"gate": "none", "label": "BN"},
        {"gate": "none", "label": "IN", "backbone_options": {"norm": "instance"}},
        {"gate": "asr:se", "label": "ASR"},
    ],
    seeds=2,
    recipe={"name": "style", "epochs": 1, "warmup_epochs": 0},
    measure={"images": 0, "inference_images": 0, "pictures": 8},
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("styles")
    outcomes = run_study(STUDY, folder, HereExecutor())
    assert [outcome.status for outcome in outcomes] == 6 * ["done"]
    return folder


@pytest.fixture(scope="module")
def record(runs: Path) -> StudyRecord:
    return read_record(runs, "styles")


def files(record: StudyRecord) -> dict[tuple[str, int], list[np.ndarray]]:
    """Pictures by row and seed, read by hand."""
    found = {}
    for run in record.finished:
        pictures = run.measured(PicturesResult)
        assert pictures is not None
        pixels = []
        for picture in pictures.pictures:
            with Image.open(run.stored.directory / picture.output) as image:
                pixels.append(np.asarray(image) / 255)
        found[run.entry.cell.row, run.entry.seed] = pixels
    return found


def test_rows_are_images_and_columns_networks(record: StudyRecord) -> None:
    section = pictures_section(record)
    assert section is not None
    heading, grid, _ = section.parts
    assert isinstance(heading, Heading)
    assert isinstance(grid, ThumbnailGrid)
    assert list(grid.columns[:4]) == ["image", "BN, seed 0", "IN, seed 0", "ASR, seed 0"]
    assert re.fullmatch(r"ASR folded, max \|Δ\| \de-0[678]", grid.columns[4])
    assert [len(row) for row in grid.rows] == [5, 5]
    by_hand = files(record)
    for place, row in enumerate(grid.rows):
        for label, thumbnail in zip(("BN", "IN", "ASR"), row[1:4], strict=True):
            kind, _, content = thumbnail.uri.partition(",")
            assert kind == "data:image/jpeg;base64"
            with Image.open(io.BytesIO(b64decode(content))) as picture:
                shown = np.asarray(picture) / 255
            assert shown.shape == (32, 32, 3)
            assert (thumbnail.height, thumbnail.width) == (128, 128)
            assert np.abs(shown - by_hand[label, 0][place]).mean() < 0.03  # JPEG
            assert thumbnail.text == f"{label}, image {place + 1}"


def test_distances_by_hand(record: StudyRecord) -> None:
    section = pictures_section(record)
    assert section is not None
    table = section.parts[2]
    assert isinstance(table, Table)
    assert list(table.columns) == ["pictures of", "BN", "IN", "ASR"]
    pixels = files(record)

    def distance(one: tuple[str, int], other: tuple[str, int]) -> float:
        pairs = zip(pixels[one], pixels[other], strict=True)
        return float(np.mean([np.linalg.norm(a - b) / np.sqrt(a.size) for a, b in pairs]))

    for row in table.rows:
        for other, cell in zip(table.columns[1:], row[1:], strict=True):
            label = row[0].text
            if label == other:
                assert cell.order == pytest.approx(distance((label, 0), (label, 1)))
                assert cell.small == ""
                continue
            values = [distance((label, seed), (other, seed)) for seed in (0, 1)]
            assert cell.order == pytest.approx(np.mean(values))
            assert cell.small == f"± {np.std(values, ddof=1):.3f}"


def test_pictures_of_fewer_images_are_left_out(record: StudyRecord, tmp_path: Path) -> None:
    """Their images are others: one of two is the first, two of two are both."""
    import shutil
    from dataclasses import replace

    from attnlab.instruments.measurement import MeasureConfig
    from attnlab.lab.measures import measure_run
    from attnlab.results import StoredRun
    from attnlab.results.record import RunRecord

    changed = []
    for run in record.runs:
        folder = tmp_path / run.entry.folder
        shutil.copytree(run.stored.directory, folder)
        if run.entry.cell.row == "IN":
            measure_run(folder, MeasureConfig(pictures=1), ["pictures"])
        changed.append(RunRecord(run.entry, StoredRun(folder)))
    section = pictures_section(replace(record, runs=tuple(changed)))
    assert section is not None
    grid, table = section.parts[1:]
    assert isinstance(grid, ThumbnailGrid)
    assert isinstance(table, Table)
    assert list(grid.columns[:3]) == ["image", "BN, seed 0", "ASR, seed 0"]
    assert list(table.columns) == ["pictures of", "BN", "ASR"]


def test_page_shows_them_in_a_browser(runs: Path, tmp_path: Path) -> None:
    page = write_study_page(runs, "styles", tmp_path / "report.html")
    with browsing(tmp_path / "browser") as browser:
        for width in (1180, 390):
            browser.open(page, width, dark=False)
            assert browser.evaluate("document.documentElement.scrollWidth") <= width
            complete = "[...document.images].filter(i => i.complete && i.naturalWidth == 32).length"
            assert browser.evaluate(complete) == 10
        assert browser.complaints == []
    text = page.read_text()
    assert "How do they look?" in text
    assert "Lower is better: a gain lies left of zero." in text


def test_no_section_without_pictures(record: StudyRecord, tmp_path: Path) -> None:
    from dataclasses import replace

    from attnlab.results import StoredRun
    from attnlab.results.record import RunRecord

    empty = tuple(RunRecord(run.entry, StoredRun(tmp_path)) for run in record.runs)
    assert pictures_section(replace(record, runs=empty)) is None
