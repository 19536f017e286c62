"""A step is timed for every kind of data."""

from __future__ import annotations

import pytest

from attnlab.lab.study.estimate import facts_of, seconds_per_image
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
    assert 0 < seconds_per_image(config, facts_of(config)) < 60
