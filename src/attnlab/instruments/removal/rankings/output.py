"""How much the network's output changes when a step is left out: no labels, one run per step."""

from __future__ import annotations

from collections.abc import Collection

from attnlab.instruments.removal.rankings.ranking import Ranking, Scores
from attnlab.instruments.removal.trial import RemovalTrial
from attnlab.residuals import StepKey
from attnlab.surgery.change import mean_image_change
from attnlab.surgery.words import MEAN_IMAGE_CHANGE


def output_changes(trial: RemovalTrial, left_out: Collection[StepKey] = ()) -> Scores:
    """For each further step: `mean_image_change` from the whole network's output."""
    scores = {}
    for step in trial.candidates:
        if step.key not in left_out:
            after = trial.answers({*left_out, step.key})
            scores[step.key] = mean_image_change(trial.before, after)
    return scores


OUTPUT = Ranking("output", MEAN_IMAGE_CHANGE, output_changes, again=True)
