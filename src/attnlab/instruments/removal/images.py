"""The images that steps are ranked on, and others that they are judged on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from attnlab.instruments.removal.trial import RemovalTrial
from attnlab.residuals.example import Example
from attnlab.subject import Part, Subject

Pair = tuple[Any, Tensor | None]
"""A batch of inputs, and their classes if these are the network's own."""
IMAGES = 256
"""To rank on, and as many to judge on, if the network was opened without a limit."""


@dataclass(frozen=True)
class RemovalTrials:
    """A network on the images that rank its steps, and on those that judge a choice."""

    ranked: RemovalTrial
    judged: RemovalTrial

    @property
    def same(self) -> bool:
        """Whether these are the same images, so that a choice looks better than it is."""
        return self.ranked is self.judged


def trials_of(
    subject: Subject,
    images: Iterable[object] | None,
    test: Iterable[object] | None,
    example: Example | None = None,
) -> RemovalTrials | None:
    """The trials of a network on the batches that are given, else on its own images; None if it has
    none.

    Args:
        subject: the network.
        images: batches to rank on; the subject's training images when None.
        test: batches to judge on; those to rank on when None, or with `images` None test images.
        example: an input to find the steps with; of the images when None.
    """
    if images is None and subject.data is not None:
        images, others = own_images(subject)
        test = others if test is None else test
    if images is None:
        return None
    ranked = RemovalTrial(subject.network, images, example)
    if test is None:
        return RemovalTrials(ranked, ranked)
    return RemovalTrials(ranked, RemovalTrial(subject.network, test, example, "test"))


def own_images(subject: Subject) -> tuple[list[Pair], list[Pair]]:
    """Training images to rank on and test images to judge on. Of images that are not divided, and
    of made ones, every other image is to rank on and the rest to judge on: of a folder that is
    sorted by class, both then see all classes."""
    data = subject.images()
    if data.divided and not data.facts.random:
        return _batches(subject, "train"), _batches(subject, "test")
    twice = replace(subject, limit=2 * (IMAGES if subject.limit is None else subject.limit))
    both = _batches(twice, "test")
    ranked, judged = ([_every_other(each, first) for each in both] for first in (0, 1))
    return _filled(ranked), _filled(judged)


def _batches(subject: Subject, part: Part) -> list[Pair]:
    """Batches of what the network takes, with classes only if they are known to be its own."""
    found = []
    for batch in subject.own_batches(IMAGES, part):
        inputs = batch.inputs if subject.task is None else subject.task.inputs(batch)
        known = subject.task is not None and isinstance(batch.targets, Tensor)
        found.append((inputs, batch.targets if known else None))
    return found


def _every_other(pair: Pair, first: int) -> Pair:
    inputs, targets = pair
    return inputs[first::2], None if targets is None else targets[first::2]


def _filled(batches: list[Pair]) -> list[Pair]:
    """Without those of which nothing is left."""
    return [pair for pair in batches if len(pair[0])]
