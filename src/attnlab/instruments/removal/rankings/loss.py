"""How much the loss grows when a step is left out: labels, one run per step."""

from __future__ import annotations

from collections.abc import Collection

from torch import Tensor

from attnlab._errors import InputError
from attnlab.instruments.removal.rankings.ranking import Ranking, Scores
from attnlab.instruments.removal.trial import RemovalTrial, loss
from attnlab.residuals import StepKey


def require_labels(trial: RemovalTrial) -> Tensor:
    """The labels of the images; an `InputError` where there are none."""
    if trial.labels is None:
        raise InputError(
            "The ranking 'loss' needs labels, and the images have none. Expected batches that are "
            "pairs of images and classes (whole numbers), or a ranking without labels: by='output'."
        )
    return trial.labels


def loss_changes(trial: RemovalTrial, left_out: Collection[StepKey] = ()) -> Scores:
    """For each further step: the cross-entropy without it minus that of the whole network."""
    labels = require_labels(trial)
    whole = loss(trial.before, labels)
    return {
        step.key: loss(trial.answers({*left_out, step.key}), labels) - whole
        for step in trial.candidates
        if step.key not in left_out
    }


LOSS = Ranking("loss", "change of the loss", loss_changes, again=True, needs_labels=True)
