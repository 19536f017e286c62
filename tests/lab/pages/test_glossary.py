"""The words of the papers on a page: one sentence each, and a place in the docs that exists."""

from __future__ import annotations

import ast
import functools
import html
import re
from pathlib import Path

import pytest
from tests.lab.pages.simulated import simulate

import attnlab

ROOT = Path(__file__).parents[3]
ENTRY = re.compile(r'<dt>(.*?)</dt><dd>(.*?) <span class="more">(.*?)</span></dd>', re.DOTALL)
PAPERS = ("step", "NSI", "TNS", "δ(M)", "p̂(M)", "M₁", "M₂")


def anchors(page: Path) -> set[str]:
    """Of the headings of a Markdown page, those in its code left out."""
    found, code = set(), False
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            code = not code
        elif not code and (heading := re.fullmatch(r"#+ (.+)", line)):
            text = re.sub(r"[^\w\- ]", "", heading[1].lower())
            found.add(text.strip().replace(" ", "-"))
    return found


def test_anchors_are_read_from_headings_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n```sh\n# no heading\n```\n\n## What's `new`, and why?\n")
    assert anchors(page) == {"a-page", "whats-new-and-why"}


@functools.cache
def places() -> list[str]:
    """Every place in the docs that the source of the pages names."""
    found = set()
    for file in (ROOT / "src" / "attnlab").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and str(node.value).startswith("docs/"):
                found.add(str(node.value))
    return sorted(found)


def test_the_pages_name_places() -> None:
    assert len(places()) >= 6


@pytest.mark.parametrize("place", places())
def test_the_docs_have_the_page_and_its_heading(place: str) -> None:
    page, separator, anchor = place.partition("#")
    assert (ROOT / page).is_file()
    assert separator
    assert anchor in anchors(ROOT / page)


def test_a_page_explains_the_words_of_the_papers(tmp_path: Path) -> None:
    simulate(tmp_path, gains={"se": 0.4}, seeds=3, epochs=4)
    page = attnlab.report(tmp_path, tmp_path / "page.html").read_text(encoding="utf-8")
    entries = {html.unescape(word): (text, more) for word, text, more in ENTRY.findall(page)}
    assert set(PAPERS) | {"gate", "ratio", "fold", "Δ", "interval", "Holm"} <= set(entries)
    for text, more in entries.values():
        assert re.fullmatch(r"[^.]+\.", re.sub(r"\d\.\d", "", html.unescape(text)))  # one sentence
        assert more in places()
