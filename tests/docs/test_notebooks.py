"""The notebooks run from top to bottom, and what is stored in them is what they print."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.docs.blocks import ROOT

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def printed(book: Any) -> list[str]:
    """What each cell of code prints, without figures: they depend on the processor."""
    texts = (
        "".join(o.text for o in cell.outputs if o.output_type == "stream" and o.name == "stdout")
        for cell in book.cells
        if cell.cell_type == "code"
    )
    return [re.sub(r"[\d.,eE+−±-]+", "#", text) for text in texts]


def test_there_is_one_for_each_job() -> None:
    assert len(NOTEBOOKS) == 4


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # the kernel is another process, with tools of its own
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path: Path, tmp_path: Path) -> None:
    stored, run = (nbformat.read(path, as_version=4) for _ in range(2))
    nbclient.NotebookClient(run, timeout=600, kernel_name="python3").execute(cwd=str(tmp_path))
    before, now = printed(stored), printed(run)
    assert [bool(text) for text in now] == [bool(text) for text in before]
    assert [text.splitlines()[:1] for text in now] == [text.splitlines()[:1] for text in before]
