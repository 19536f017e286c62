"""In which order steps go, by a ranking."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from attnlab._errors import InputError, ShortenError
from attnlab.instruments.removal.rankings import Ranking, Scores
from attnlab.instruments.removal.trial import RemovalTrial
from attnlab.residuals import Step
from attnlab.surgery.shortening.operation import named

_REASONS = 2
"""Why steps must stay: as many reasons are told."""


@dataclass(frozen=True)
class Chosen:
    """A step that goes, and why it is this one."""

    step: Step
    score: float | None = None
    """None where it was named by hand."""
    next: float | None = None
    """The score of the one that would have gone in its place; None where it was the last."""


def removal_order(trial: RemovalTrial, ranking: Ranking, number: int) -> list[Chosen]:
    """The first `number` steps that `ranking` gives up: the lowest score first, the earlier step
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


def check_number(trial: RemovalTrial, number: int) -> None:
    """Refuse to remove more steps than there are."""
    most = len(trial.candidates)
    if number <= most:
        return
    raise ShortenError(
        f"Expected to remove at most {most} of the {len(trial.found.steps)} steps of "
        f"{type(trial.network).__name__} but got {number}.{_staying(trial)}"
    )


def _staying(trial: RemovalTrial) -> str:
    """Which steps must stay, by reason; empty where all can go."""
    by_reason: dict[str, list[Step]] = {}
    for step in trial.found.steps:
        if trial.reasons[step.key]:
            by_reason.setdefault(trial.reasons[step.key], []).append(step)
    said = ""
    for reason, (first, *others) in list(by_reason.items())[:_REASONS]:
        said += f" {named(first)} must stay: {reason}."
        if others:
            names = ", ".join(named(step) for step in others[:3])
            more = f" and {len(others) - 3} more" if len(others) > 3 else ""
            said += f" So must {names}{more}, for the same reason."
    left = sum(len(steps) for steps in list(by_reason.values())[_REASONS:])
    return f"{said} So must {left} more, for other reasons." if left else said


def _scores(trial: RemovalTrial, ranking: Ranking, gone: list[Chosen]) -> Scores:
    scores = ranking.scores(trial, {each.step.key for each in gone})
    for step in trial.candidates:
        if not isfinite(scores.get(step.key, 0.0)):
            raise InputError(
                f"The {ranking.says} of step {named(step)} is not finite on these "
                f"images. Did the training of the network diverge?"
            )
    return scores
