"""A batch in parts, one after the other: less memory, and the same gradient where it can be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from attnlab._words import counted
from attnlab.data import Batch
from attnlab.lab.training.recipe import Recipe
from attnlab.tasks import Task
from attnlab.tasks.task import Loss


def what_differs(recipe: Recipe, task: type[Task], network: nn.Module) -> list[str]:
    """List in a sentence each how a training with `accumulate` differs from the one with whole
    batches."""
    parts, notes = recipe.accumulate, []
    if parts == 1:
        return []
    norms = sum(isinstance(module, _BatchNorm) for module in network.modules())
    if norms:
        see = "sees" if norms == 1 else "see"
        notes.append(
            f"accumulate = {parts}: {counted(norms, 'batch norm')} {see} parts of "
            f"{recipe.batch_size // parts} images at a time, not {recipe.batch_size}, and their "
            f"running statistics move {parts} times a step, so this is not the training with whole "
            f"batches."
        )
    if not task.mean_of_inputs:
        notes.append(
            f"accumulate = {parts}: the loss of task {task.__name__} is not a mean over images, so "
            f"its parts do not add up to the gradient of the whole batch, but come near."
        )
    return notes


class Division(NamedTuple):
    """A part of a batch, and which share of it that is."""

    batch: Batch
    share: float


def divided(batch: Batch, parts: int) -> list[Division]:
    """A batch in `parts` parts, as equal as can be; fewer if it has fewer inputs."""
    images = len(batch.inputs)
    if parts == 1 or images < 2:
        return [Division(batch, 1.0)]
    ends = [images * n // min(parts, images) for n in range(min(parts, images) + 1)]
    return [
        Division(Batch(batch.inputs[a:b], batch.targets[a:b]), (b - a) / images)
        for a, b in pairwise(ends)
    ]


def joined(losses: Sequence[Loss], shares: Sequence[float]) -> Loss:
    """The loss of a batch by those of its parts. A figure that a part does not have, such as the
    accuracy of pixels of which none is known, is the mean over the others."""

    def mean(values: Iterable[Tensor | None]) -> Tensor:
        there = [(s, v) for s, v in zip(shares, values, strict=True) if v is not None]
        total = sum(share * value for share, value in there)
        assert isinstance(total, Tensor)
        return total if len(there) == len(shares) else total / sum(share for share, _ in there)

    def means(found: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        names = dict.fromkeys(name for each in found for name in each)
        return {name: mean(each.get(name) for each in found) for name in names}

    return Loss(
        mean(loss.mean.detach() for loss in losses),
        means([loss.figures for loss in losses]),
        means([loss.parts for loss in losses]),
    )
