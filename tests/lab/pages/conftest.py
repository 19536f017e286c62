"""One simulated study of 150 runs, written once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.lab.pages.simulated import simulate

from attnlab.lab.pages.write import write_study_page


@dataclass(frozen=True)
class Written:
    runs: Path
    page: Path


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """150 runs of ResNet-164's 54 blocks and 164 epochs."""
    folder = tmp_path_factory.mktemp("whole")
    blocks = [f"{stage}.{block}" for stage in (1, 2, 3) for block in range(18)]
    study = simulate(folder / "runs", blocks=blocks)
    assert len(study.runs) == 150
    page = write_study_page(folder / "runs", study.name, folder / "report.html")
    return Written(folder / "runs", page)
