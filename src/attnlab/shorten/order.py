"""In which order steps go, by a ranking."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from attnlab._errors import InputError, ShortenError
from attnlab.insert import Step
from attnlab.shorten._surgery import named
from attnlab.shorten.rankings import Ranking, Scores
from attnlab.shorten.trial import Trial


@dataclass(frozen=True)
class Chosen:
    """A step that goes, and why it is this one."""

    step: Step
    score: float | None = None
    """None where it was named by hand."""
    next: float | None = None
    """The score of the one that would have gone in its place; None where it was the last."""


def removal_order(trial: Trial, ranking: Ranking, number: int) -> list[Chosen]:
    """The first `number` steps that `ranking` gives up: the least score first, the earlier step
    where scores tie; measured again after each where the ranking does that."""
    check_number(trial, number)
    steps = {step.key: step for step in trial.candidates}
    chosen: list[Chosen] = []
    scores = _scores(trial, ranking, []) if number else {}
    while len(chosen) < number:
        if ranking.again and chosen:
            scores = _scores(trial, ranking, chosen)
        ordered = sorted(scores, key=lambda key: scores[key])
        following = scores[ordered[1]] if len(ordered) > 1 else None
        chosen.append(Chosen(steps[ordered[0]], scores.pop(ordered[0]), following))
    return chosen


def check_number(trial: Trial, number: int) -> None:
    """Refuse to remove more steps than there are."""
    most = len(trial.candidates)
    if number <= most:
        return
    stay = [step for step in trial.found.steps if trial.reasons[step.key]]
    names = ", ".join(named(step) for step in stay[:4])
    more = f" and {len(stay) - 4} more" if len(stay) > 4 else ""
    because = f" {names}{more} must stay: {trial.reasons[stay[0].key]}." if stay else ""
    raise ShortenError(
        f"Expected to remove at most {most} of the {len(trial.found.steps)} steps of "
        f"{type(trial.network).__name__} but got {number}.{because}"
    )


def _scores(trial: Trial, ranking: Ranking, gone: list[Chosen]) -> Scores:
    scores = ranking.scores(trial, {each.step.key for each in gone})
    for step in trial.candidates:
        if not isfinite(scores.get(step.key, 0.0)):
            raise InputError(
                f"The {ranking.says} of step {named(step)} is not finite on these "
                f"images. Did the training of the network diverge?"
            )
    return scores
