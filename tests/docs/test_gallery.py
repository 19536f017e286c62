"""The pictures of the documentation: shown, described, small, and nothing of them is fetched."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import torch
from tests.docs.blocks import ROOT, pages
from tests.programs import program

from attnlab.instruments.stiffness import tns
from attnlab.page.plot import to_svg

FOLDER = ROOT / "docs" / "gallery"
PICTURES = sorted(FOLDER.iterdir())
IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)]+)\)")


def shown() -> list[tuple[Path, str, Path]]:
    """(page, alternative text, file) of every picture of every page."""
    return [
        (page, text, (page.parent / target).resolve())
        for page in pages()
        for text, target in IMAGE.findall(page.read_text(encoding="utf-8"))
        if not target.startswith("http")
    ]


def test_every_picture_is_shown_and_there() -> None:
    assert {file for _, _, file in shown() if file.parent == FOLDER} == set(PICTURES)
    assert [file for _, _, file in shown() if not file.is_file()] == []


def test_every_picture_is_described() -> None:
    assert [str(file) for _, text, file in shown() if len(text.split()) < 5] == []


def test_sizes() -> None:
    sizes = {file.name: file.stat().st_size for file in PICTURES}
    assert {name: size for name, size in sizes.items() if size > 150_000} == {}
    assert sum(sizes.values()) <= 1_500_000


@pytest.mark.parametrize("file", [f for f in PICTURES if f.suffix == ".svg"], ids=lambda f: f.name)
def test_drawings_are_whole_and_refer_to_nothing(file: Path) -> None:
    root = ElementTree.parse(file).getroot()
    assert float(root.attrib["width"]) > 100
    targets = [
        value
        for element in root.iter()
        for name, value in element.attrib.items()
        if name.endswith("href")
    ]
    assert [target for target in targets if not target.startswith(("data:image/png", "#"))] == []


@pytest.mark.parametrize("name", ["exact", "kernels", "screenshot", "trained"])
def test_what_makes_the_pictures_fits_the_toolkit(name: str) -> None:
    program(f"examples/gallery/{name}.py")


def test_the_staircase_shows_the_area_that_tns_computes() -> None:
    module = program("examples/gallery/exact.py")
    figure = to_svg(module.staircase_figure(module.NSI, module.STAGES))
    area = tns(torch.tensor([module.NSI], dtype=torch.float64), torch.tensor(module.STAGES))
    assert f"TNS = {area.item():.4g}" in figure


def test_euler_follows_with_short_steps_and_leaves_with_long_ones() -> None:
    """|u − solution| at the end: below 0.02 for 0.1, above 1 for 0.26, where |1 − 8 · 0.26| > 1."""
    module = program("examples/gallery/exact.py")
    rows = module.euler_figure()["data"]["values"]
    for name, (low, high) in {"Δt = 0.1": (0, 0.02), "Δt = 0.26 > 2/8": (1, 10)}.items():
        last = max((row for row in rows if row["step"] == name), key=lambda row: row["t"])
        assert low <= abs(last["u"] - module._relaxation(last["t"], 8.0)) <= high
