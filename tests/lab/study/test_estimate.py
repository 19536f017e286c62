"""A step is timed for every kind of data, and what a study costs by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnlab._errors import InputError
from attnlab.lab.study import Study
from attnlab.lab.study.cost import TimeSpan, cost_of, read_steps, write_steps
from attnlab.lab.study.estimate import facts_of, plan_study, seconds_per_image
from attnlab.lab.training import RunConfig

SMALL = {"train_subset": 4, "test_subset": 2}


@pytest.mark.parametrize(
    "settings",
    [
        {"data": {"name": "fake", **SMALL}, "backbone": "resnet20", "recipe": "digits"},
        {
            "task": "segmentation",
            "data": {"name": "shape-masks", "size": 16, **SMALL},
            "backbone": "unet",
            "backbone_options": {"width": 4, "levels": 1},
            "recipe": "shape_masks",
        },
        {
            "task": "detection",
            "data": {"name": "shapes", "size": 32, **SMALL},
            "backbone": "resnet20",
            "recipe": "shapes",
        },
    ],
    ids=("classes", "masks", "boxes"),
)
def test_a_step_is_timed(settings: dict[str, object]) -> None:
    config = RunConfig(**settings)
    span = seconds_per_image(config, facts_of(config))
    assert 0 < span.low <= span.middle <= span.high < 60


def test_the_cost_of_runs_by_hand() -> None:
    runs = [TimeSpan(3600.0, 7200.0, 10800.0)] * 10
    cost = cost_of(runs, 4, price=2.5)
    assert cost.device_seconds == TimeSpan(36000.0, 72000.0, 108000.0)
    assert cost.seconds == TimeSpan(10800.0, 21600.0, 32400.0)  # three rounds: 4, 4 and 2 runs
    assert cost.money == TimeSpan(25.0, 50.0, 75.0)
    # A run is not divided among devices.
    assert cost_of(runs, 64).seconds == TimeSpan(3600.0, 7200.0, 10800.0)
    assert cost_of([], 8).seconds == TimeSpan(0.0, 0.0, 0.0)


def test_a_table_of_steps_says_what_a_study_takes_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "steps.toml"
    write_steps(file, 'a "fast" one', {"resnet50 plain": TimeSpan(0.001, 0.0015, 0.002)})
    file.write_text(file.read_text() + "\n[images]\nimagenet = [1000, 300]\n")
    study = Study(
        name="far",
        data={"name": "folder", "label": "imagenet", "root": str(tmp_path / "no"), "size": 224},
        backbone={"name": "torchvision:resnet50", "label": "resnet50"},
        attention="none",
        seeds=3,
        recipe={"name": "stepnet_imagenet", "epochs": 2},
    )
    plan = plan_study(study, tmp_path / "runs", steps=read_steps(file))
    cost = plan.cost(2, 1.0)
    assert cost is not None
    images = 3 * (2 * 1000 + 2 * 300 / 3)  # a test image takes a third of a training image
    assert cost.device_seconds == pytest.approx((0.001 * images, 0.0015 * images, 0.002 * images))
    (one,) = plan.estimates.values()
    assert (one.seconds, one.basis) == (pytest.approx(0.0015 * images / 3), "table")
    assert plan.problem  # the images are not here
    with pytest.raises(InputError, match=r"has no 'resnet50 SE'; it has 'resnet50 plain'"):
        read_steps(file).step("resnet50", "SE")
    file.write_text('device = "x"\n[seconds_per_image]\n"a b" = [2.0, 1.0]\n')
    with pytest.raises(InputError, match=r"'a b': the least, 2, is more than the most, 1"):
        read_steps(file)
    with pytest.raises(InputError, match=r"Expected a table of measured steps"):
        read_steps(tmp_path / "none.toml")
