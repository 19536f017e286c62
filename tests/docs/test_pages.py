"""The examples of every page run, and print what the page shows."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from tests.docs.blocks import ROOT, blocks_of, pages
from tests.docs.page import run_page

LANGUAGES = {
    "python",
    "py",
    "console",
    "sh",
    "output",
    "text",
    "toml",
    "bibtex",
    "html",
    "json",
    "",
}
RUN = [
    path
    for path in pages()
    if {block.language for block in blocks_of(path.read_text(encoding="utf-8"))}
    & {"python", "console"}
]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", RUN, ids=name)
def test_examples(path: Path, tmp_path: Path) -> None:
    with np.printoptions(formatter=None, linewidth=75):  # Ultralytics sets others when imported
        differences = run_page(path, tmp_path, make=os.environ.get("ATTNLAB_DOCS") == "all")
    assert not differences, "\n\n".join(map(str, differences)) + (
        f"\n\nIf the outputs are right: python -m tests.docs.console --write {name(path)}"
    )


@pytest.mark.parametrize("path", pages(), ids=name)
def test_languages_are_known(path: Path) -> None:
    blocks = blocks_of(path.read_text(encoding="utf-8"))
    assert {block.language for block in blocks} <= LANGUAGES
