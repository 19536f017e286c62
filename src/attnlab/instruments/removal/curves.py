"""What a network loses as steps go, one after the other, by each ranking."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from time import perf_counter
from typing import NamedTuple

from attnlab._checked import check_whole
from attnlab._errors import OptionError
from attnlab.instruments.removal.images import trials_of
from attnlab.instruments.removal.order import check_number, removal_order
from attnlab.instruments.removal.rankings import RANKINGS, Ranking, ranking_named
from attnlab.instruments.removal.result import (
    RemovalCurve,
    RemovalPoint,
    ShortenResult,
    StepAlone,
)
from attnlab.instruments.removal.trial import RemovalTrial
from attnlab.residuals import StepKey
from attnlab.residuals.example import Example
from attnlab.subject import Source
from attnlab.subject import open as open_subject
from attnlab.surgery.answer import accuracy
from attnlab.surgery.change import mean_image_change


def removal_curves(
    network: Source,
    images: Iterable[object] | None = None,
    *,
    test: Iterable[object] | None = None,
    rankings: Sequence[str] | None = None,
    most: int | None = None,
    asked: int | None = None,
    asked_by: str | None = None,
    example: Example | None = None,
) -> ShortenResult:
    """The change of the output, and the accuracy if there are labels, against the number of
    removed steps, by each ranking; and every step left out alone. Nothing is changed.

    Args:
        network: trained, as for `attnlab.open`.
        images: batches to rank the steps on, each a tensor, or a pair of images and classes; the
            network's own training images when None.
        test: batches to measure on; `images` when None, or its own test images with its own.
        rankings: some of `attnlab.instruments.removal.RANKINGS`; when None all that are possible
            and not for some outputs only.
        most: how many steps go; all that can be removed when None. Rankings that measure again run
            the network once per step and removal.
        asked: how many of them the verdict is about; `most` when None.
        asked_by: by which ranking; the first when None.
        example: an input to find the steps with; of the images when None.
    """
    began = perf_counter()
    subject = open_subject(network)
    trials = trials_of(subject, images, test, example)
    if trials is None:
        raise OptionError("Removal curves need images: pass batches, images=loader.")
    ranked, judge = trials.ranked, _Judge(trials.judged)
    chosen, depth = _rankings(rankings, ranked), _depth(most, ranked)
    _check_asked(asked, asked_by, depth, chosen)
    found = ShortenResult(
        network=subject.name,
        images=ranked.images,
        test_images=trials.judged.images,
        same_images=trials.same,
        accuracy=judge.of(frozenset()).accuracy,
        loss=judge.of(frozenset()).loss,
        curves=tuple(_curve(ranked, judge, ranking, depth) for ranking in chosen),
        steps=tuple(_alone(ranked, judge, chosen)),
        asked=asked,
        asked_by=asked_by,
        seconds=perf_counter() - began,
    )
    return subject.sign(found)


def _check_asked(
    asked: int | None, asked_by: str | None, depth: int, chosen: Sequence[Ranking]
) -> None:
    """Refuse a verdict on more steps than go, or by a ranking that is not computed."""
    if asked is not None:
        check_whole("asked", asked, 1)
        if asked > depth:
            raise OptionError(f"Expected asked to be at most {depth}, as many as go, not {asked}.")
    if asked_by is not None and asked_by not in [ranking.name for ranking in chosen]:
        names = ", ".join(ranking.name for ranking in chosen)
        raise OptionError(f"Expected asked_by to be one of {names} but got {asked_by!r}.")


def _rankings(names: Sequence[str] | None, trial: RemovalTrial) -> list[Ranking]:
    if names is None:
        usual = [ranking for ranking in RANKINGS.values() if not ranking.on_request]
        return [r for r in usual if trial.loss_before is not None or not r.needs_labels]
    return [ranking_named(name) for name in names]


def _depth(most: int | None, trial: RemovalTrial) -> int:
    depth = len(trial.candidates) if most is None else most
    check_whole("most", depth, 1)
    check_number(trial, depth)
    return depth


class _Judged(NamedTuple):
    """A network without some steps: fields of points and of steps that are left out alone."""

    output_change: float
    accuracy: float | None
    loss: float | None
    """Of a text only: classes have the accuracy."""


class _Judge:
    """Measures sets of steps that are left out, each once."""

    def __init__(self, judged: RemovalTrial) -> None:
        self.judged = judged
        self._known: dict[frozenset[StepKey], _Judged] = {}

    def of(self, left_out: frozenset[StepKey]) -> _Judged:
        if left_out not in self._known:
            judged = self.judged
            after = judged.answers(left_out) if left_out else judged.before
            change = mean_image_change(judged.before, after)
            right = None if judged.labels is None else accuracy(after, judged.labels)
            self._known[left_out] = _Judged(change, right, self._loss(left_out))
        return self._known[left_out]

    def _loss(self, left_out: frozenset[StepKey]) -> float | None:
        if not self.judged.is_text:
            return None
        return self.judged.loss(left_out) if left_out else self.judged.loss_before


def _curve(trial: RemovalTrial, judge: _Judge, ranking: Ranking, most: int) -> RemovalCurve:
    gone: frozenset[StepKey] = frozenset()
    points = [RemovalPoint(0, "", "", None, None, *judge.of(gone))]
    for number, each in enumerate(removal_order(trial, ranking, most), start=1):
        gone |= {each.step.key}
        step = each.step
        points.append(
            RemovalPoint(number, step.label, step.name, each.score, each.next, *judge.of(gone))
        )
    return RemovalCurve(ranking.name, ranking.says, tuple(points))


def _alone(trial: RemovalTrial, judge: _Judge, rankings: Sequence[Ranking]) -> Iterator[StepAlone]:
    """Every step: what each ranking says of it, and what leaving it out does."""
    scores = {ranking.name: ranking.scores(trial, ()) for ranking in rankings}
    for step in trial.found.steps:
        reason = trial.reasons[step.key]
        if reason:
            yield StepAlone(step.label, step.name, reason, {})
            continue
        own = {ranking: values[step.key] for ranking, values in scores.items()}
        yield StepAlone(step.label, step.name, "", own, *judge.of(frozenset([step.key])))
