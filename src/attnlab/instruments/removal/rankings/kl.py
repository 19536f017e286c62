"""How far the distribution that a network gives its classes or next tokens moves without a step."""

from __future__ import annotations

from collections.abc import Collection

from torch import Tensor

from attnlab._errors import InputError
from attnlab.instruments.removal.rankings.ranking import Ranking, Scores
from attnlab.instruments.removal.trial import RemovalTrial
from attnlab.residuals import StepKey
from attnlab.surgery.answer import is_number, leaves


def log_probabilities(output: object) -> Tensor:
    """The logarithms of what a network's first result says of its classes, in float64: (rows,
    classes), one row per image, token or place. Classes are on the last axis, of maps on axis 1."""
    logits = next((tensor for _, tensor in leaves(output) if is_number(tensor)), None)
    if logits is None or logits.ndim < 2:
        got = "no numbers" if logits is None else f"shape {tuple(logits.shape)}"
        raise InputError(
            f"The ranking 'kl' compares distributions over classes: expected a network whose first "
            f"result is (inputs, classes) or (inputs, tokens, classes) but got {got}. Choose "
            f"another ranking: by='output'."
        )
    if logits.ndim > 3:
        logits = logits.movedim(1, -1)
    return logits.detach().double().cpu().flatten(0, -2).log_softmax(-1)


def divergence(whole: Tensor, shorter: Tensor) -> float:
    """KL(p ‖ q) in nats of the distributions with these log-probabilities, mean over rows."""
    return float((whole.exp() * (whole - shorter)).sum(-1).mean())


def divergences(trial: RemovalTrial, left_out: Collection[StepKey] = ()) -> Scores:
    """For each further step: the divergence of the whole network's distribution from that without
    the step."""
    whole = trial.outputs(log_probabilities)
    scores = {}
    for step in trial.candidates:
        if step.key not in left_out:
            shorter = trial.outputs(log_probabilities, {*left_out, step.key})
            parts = [divergence(*pair) * len(pair[0]) for pair in zip(whole, shorter, strict=True)]
            scores[step.key] = sum(parts) / sum(map(len, whole))
    return scores


KL = Ranking("kl", "KL divergence of the output", divergences, again=True, on_request=True)
