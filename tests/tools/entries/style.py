"""Losses of style transfer."""

from __future__ import annotations

import torch
from tests.tools.entries.shared import figures, images


def losses() -> object:
    from attnlab.tasks.perceptual import content_loss, gram, style_loss, total_variation

    one, other = images(2, 12), images(2, 12, seed=2)
    return {
        "gram": gram(one),
        "content": content_loss(one, other),
        "style": style_loss([one, one * 2], [gram(other), gram(other)]),
        "variation": total_variation(one),
    }


def filters() -> object:
    from attnlab.tasks.perceptual import RandomFilters

    with torch.no_grad():
        return [figures(each) for each in RandomFilters().double()(images(1, 24).sigmoid())]


def task() -> object:
    from attnlab.data import DataConfig, load_data
    from attnlab.tasks import TaskConfig, build_task

    data = load_data(DataConfig(name="photos", size=36))
    given = TaskConfig(name="style-filters", options={"style": "glass"})
    task = build_task(given, data.facts)
    torch.manual_seed(0)
    network = task.build("fast_style", {"width": 4, "blocks": 1, "norm": "batch"}).eval()
    batch = next(data.testing([torch.arange(2)], torch.device("cpu")))
    with torch.no_grad():
        return {
            "loss": task.loss(network, batch).mean,
            "each": task.predict(network, batch),
        }
