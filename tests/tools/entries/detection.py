"""Average precision of made boxes."""

from __future__ import annotations

import torch
from tests.detection.guesses import guesses, random_targets


def average_precision() -> object:
    from attnlab.tasks.detection import Detection

    found = {}
    for seed in (0, 1):
        targets = random_targets(seed=seed)
        predictions = guesses(targets, [(480, 480)] * len(targets), [1, 2, 3], seed)
        meters = Detection.meters(None, torch.device("cpu"))
        meters.update(predictions, targets)
        found[seed] = meters.compute()
    return found


def by_class_and_size() -> object:
    from attnlab.tasks._average_precision import average_precision

    targets = random_targets(seed=5, crowds=False)
    predictions = guesses(targets, [(480, 480)] * len(targets), [1, 2, 3], 5)
    found = average_precision(predictions, targets)
    return {
        "labels": {label: found.average(label=label) for label in found.labels},
        "sizes": {size: found.average(size) for size in ("all", "small", "medium", "large")},
        "overlaps": {overlap: found.average(overlap=overlap) for overlap in (0.5, 0.75)},
        "recall": found.average_recall(),
        "curve": found.curve(1),
    }
