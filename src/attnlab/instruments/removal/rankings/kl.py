"""How far the distribution that a network gives its classes or next tokens moves without a step."""

from __future__ import annotations

from collections.abc import Collection

from torch import Tensor

from attnlab.instruments.removal.rankings.ranking import Ranking, Scores
from attnlab.instruments.removal.text import log_probabilities
from attnlab.instruments.removal.trial import RemovalTrial
from attnlab.residuals import StepKey


def divergence(whole: Tensor, shorter: Tensor) -> float:
    """KL(p ‖ q) in nats of the distributions with these log-probabilities, mean over rows."""
    return float((whole.exp() * (whole - shorter)).sum(-1).mean())


def divergences(trial: RemovalTrial, left_out: Collection[StepKey] = ()) -> Scores:
    """Return for each further step the divergence of the whole network's distribution from the one
    without that step."""
    whole = trial.outputs(log_probabilities)
    scores = {}
    for step in trial.candidates:
        if step.key not in left_out:
            shorter = trial.outputs(log_probabilities, {*left_out, step.key})
            parts = [divergence(*pair) * len(pair[0]) for pair in zip(whole, shorter, strict=True)]
            scores[step.key] = sum(parts) / sum(map(len, whole))
    return scores


KL = Ranking("kl", "KL divergence of the output", divergences, again=True, on_request=True)
