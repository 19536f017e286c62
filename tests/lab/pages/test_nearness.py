"""The section on nearness, of a study that was really trained and measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.lab.study._small import HereExecutor, small_study

from attnlab.instruments.measurement import MeasureConfig
from attnlab.instruments.trajectory import TrajectoryResult, cka_distances
from attnlab.lab.measures import measure_run
from attnlab.lab.pages.nearness import nearness_sections
from attnlab.lab.study import run_study
from attnlab.results.record import find_study, read_record

STUDY = small_study(
    seeds=2, measure={"images": 0, "inference_images": 0, "trajectory": 8}, attention=["none", "se"]
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    assert [each.status for each in run_study(STUDY, out, HereExecutor())] == ["done"] * 4
    return out


def test_a_study_shows_who_is_near_the_best(runs: Path) -> None:
    record = read_record(*find_study(runs))
    (section,) = nearness_sections(record)
    kept = {
        (run.entry.cell.row, run.entry.seed): run.measured(TrajectoryResult) for run in record.runs
    }
    assert all(result is not None and result.images == 8 for result in kept.values())
    best = "plain" if section.answer.startswith("plain") else "se"
    floor = cka_distances(kept[best, 0], kept[best, 1])  # by hand: the two seeds of the best row
    folded = section.parts[1].parts[0]
    shown = next(row for row in folded.rows if row[0].text.endswith("(best)"))
    assert shown[2].text == f"{sum(floor) / len(floor):.3f}"


def test_trajectories_of_other_images_are_said_and_not_compared(runs: Path) -> None:
    record = read_record(*find_study(runs))
    folder = record.runs[-1].stored.directory
    measure_run(folder, MeasureConfig(images=0, trajectory=9), ["trajectory"])
    (section,) = nearness_sections(read_record(*find_study(runs)))
    assert "are of different images" in section.answer
    assert "--only trajectory" in section.to_do
    assert section.parts == []
