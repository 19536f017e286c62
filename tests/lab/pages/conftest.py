"""One simulated study of 150 runs, written once in a test run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock
from tests.lab.pages.simulated import simulate

from attnlab.lab.pages.write import write_study_page


@dataclass(frozen=True)
class Written:
    runs: Path
    page: Path


@pytest.fixture(scope="session")
def whole(shared_folder: Path) -> Written:
    """150 runs of ResNet-164's 54 blocks and 164 epochs, for all processes of a test run."""
    folder = shared_folder / "whole"
    written = Written(folder / "runs", folder / "report.html")
    with FileLock(shared_folder / "whole.lock"):
        if not written.page.exists():
            blocks = [f"{stage}.{block}" for stage in (1, 2, 3) for block in range(18)]
            study = simulate(written.runs, blocks=blocks)
            assert len(study.runs) == 150
            write_study_page(written.runs, study.name, written.page)
    return written
