"""How much the network's output changes when a step is left out: no labels, one run per step."""

from __future__ import annotations

from collections.abc import Collection

from attnlab.instruments.removal.rankings.ranking import Ranking, Scores
from attnlab.instruments.removal.trial import Trial, relative_change
from attnlab.residuals import StepKey


def output_changes(trial: Trial, left_out: Collection[StepKey] = ()) -> Scores:
    """For each further step: ‖y′ − y‖ / ‖y‖, mean over images; y is the whole network's output."""
    scores = {}
    for step in trial.candidates:
        if step.key not in left_out:
            after = trial.answers({*left_out, step.key})
            scores[step.key] = float(relative_change(trial.before, after).mean())
    return scores


OUTPUT = Ranking("output", "relative change of the output", output_changes, again=True)
