"""What a network loses as steps go, one after the other, by each ranking."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from torch import nn

from attnlab._checked import check_module, check_whole
from attnlab._errors import unknown_name
from attnlab._files import write_whole
from attnlab.instruments.removal.order import check_number, removal_order
from attnlab.instruments.removal.rankings import RANKINGS, Ranking
from attnlab.instruments.removal.trial import Trial, accuracy, relative_change
from attnlab.residuals import StepKey
from attnlab.residuals.example import Example
from attnlab.results.provenance import Provenance

FORMAT = "attnlab shorten 1"


@dataclass(frozen=True)
class CurvePoint:
    """A network without that many steps."""

    removed: int
    label: str
    """Of the step that went last; empty where none did."""
    name: str
    score: float | None
    """Of that step, by the ranking."""
    next: float | None
    """Of the step that would have gone in its place."""
    output_change: float
    """‖y′ − y‖ / ‖y‖ of the output, mean over images."""
    accuracy: float | None
    """Per cent, where there are labels."""


@dataclass(frozen=True)
class Curve:
    """The steps in the order in which a ranking gives them up."""

    ranking: str
    says: str
    points: tuple[CurvePoint, ...]


@dataclass(frozen=True)
class StepAlone:
    """One step, left out alone."""

    label: str
    name: str
    reason: str
    """Why it cannot be removed, or an empty string; then what follows is empty."""
    scores: dict[str, float]
    """By the name of the ranking, in the whole network."""
    output_change: float | None = None
    accuracy: float | None = None


@dataclass(frozen=True)
class ShortenResult:
    """What `removal_curves` found."""

    network: str
    images: int
    """On which the steps were ranked."""
    test_images: int
    """On which the points were measured."""
    same_images: bool
    """Whether these are the same."""
    accuracy: float | None
    """Of the whole network, per cent, where there are labels."""
    curves: tuple[Curve, ...]
    steps: tuple[StepAlone, ...]
    seconds: float
    provenance: Provenance | None = None

    def to_json(self) -> str:
        """What a shorten.json holds."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1, ensure_ascii=False) + "\n"

    def save(self, path: str | Path) -> Path:
        """Write it as JSON; `attnlab.report` makes a page of it."""
        return write_whole(Path(path), self.to_json())


def removal_curves(
    network: nn.Module,
    images: Iterable[Any],
    *,
    test: Iterable[Any] | None = None,
    rankings: Sequence[str] | None = None,
    most: int | None = None,
    example: Example | None = None,
    name: str | None = None,
) -> ShortenResult:
    """The change of the output, and the accuracy where there are labels, against the number of
    removed steps, by each ranking; and every step left out alone. Nothing is changed.

    Args:
        network: trained.
        images: batches to rank the steps on, each a tensor, or a pair of images and classes.
        test: batches to measure on; `images` when None.
        rankings: names of `attnlab.instruments.removal.RANKINGS`; all that the images allow when
            None.
        most: how many steps go; all that can be removed when None. Rankings that measure again run
            the network once per step and removal.
        example: an input to find the steps with; of the images when None.
        name: of the network, for the page.
    """
    began = perf_counter()
    check_module(network, "the network")
    trial = Trial(network, images, example)
    judged = trial if test is None else Trial(network, test, example, "test")
    chosen = _rankings(rankings, trial)
    if most is None:
        most = len(trial.candidates)
    check_whole("most", most, 1)
    check_number(trial, most)
    judge = _Judge(judged)
    curves = tuple(_curve(trial, judge, ranking, most) for ranking in chosen)
    scores = {ranking.name: ranking.scores(trial, ()) for ranking in chosen}
    steps = []
    for step in trial.found.steps:
        reason = trial.reasons[step.key]
        if reason:
            steps.append(StepAlone(step.label, step.name, reason, {}))
            continue
        change, right = judge.of(frozenset([step.key]))
        own = {ranking: values[step.key] for ranking, values in scores.items()}
        steps.append(StepAlone(step.label, step.name, "", own, change, right))
    return ShortenResult(
        network=name or type(network).__name__,
        images=trial.images,
        test_images=judged.images,
        same_images=test is None,
        accuracy=judge.of(frozenset())[1],
        curves=curves,
        steps=tuple(steps),
        seconds=perf_counter() - began,
    )


def _rankings(names: Sequence[str] | None, trial: Trial) -> list[Ranking]:
    if names is None:
        return [r for r in RANKINGS.values() if trial.labels is not None or not r.needs_labels]
    for name in names:
        if name not in RANKINGS:
            raise unknown_name("ranking", name, RANKINGS)
    return [RANKINGS[name] for name in names]


class _Judge:
    """Measures sets of steps that are left out, each once."""

    def __init__(self, judged: Trial) -> None:
        self.judged = judged
        self._known: dict[frozenset[StepKey], tuple[float, float | None]] = {}

    def of(self, left_out: frozenset[StepKey]) -> tuple[float, float | None]:
        """The relative change of the output and the accuracy."""
        if left_out not in self._known:
            judged = self.judged
            after = judged.answers(left_out) if left_out else judged.before
            change = float(relative_change(judged.before, after).mean())
            right = None if judged.labels is None else accuracy(after, judged.labels)
            self._known[left_out] = (change, right)
        return self._known[left_out]


def _curve(trial: Trial, judge: _Judge, ranking: Ranking, most: int) -> Curve:
    gone: frozenset[StepKey] = frozenset()
    points = [CurvePoint(0, "", "", None, None, *judge.of(gone))]
    for number, each in enumerate(removal_order(trial, ranking, most), start=1):
        gone |= {each.step.key}
        step = each.step
        points.append(
            CurvePoint(number, step.label, step.name, each.score, each.next, *judge.of(gone))
        )
    return Curve(ranking.name, ranking.says, tuple(points))
