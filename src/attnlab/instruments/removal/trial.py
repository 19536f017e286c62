"""A network on images, with any of its steps left out: what rankings and curves are made of."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab._errors import InputError
from attnlab.instruments.removal.text import mean_token_loss, speaks_of, token_loss
from attnlab.instruments.stiffness.plan import plan_steps
from attnlab.residuals import Step, StepKey
from attnlab.residuals.example import Example, call, evaluating
from attnlab.residuals.inputs import Sample, head, samples_of
from attnlab.residuals.watching import watching
from attnlab.surgery.answer import check_labels, is_number, leaves
from attnlab.surgery.shortening.check import LeavesOut
from attnlab.surgery.shortening.operation import why_not


class RemovalTrial:
    """A network and images; runs are in eval mode without gradients, and change nothing."""

    def __init__(
        self,
        network: nn.Module,
        images: Iterable[Any],
        example: Example | None = None,
        what: str = "images",
    ) -> None:
        self.network = network
        self.samples = samples_of(images, network, what)
        self.example = head(self.samples[0].inputs, 1) if example is None else example
        self.plan = plan_steps(network, self.example)
        self.found = self.plan.found
        self.reasons = {step.key: why_not(network, self.found, step) for step in self.found.steps}
        """Why a step cannot be removed; empty for one that can."""

    @property
    def candidates(self) -> list[Step]:
        """The steps that can be removed, in the order of execution."""
        return [step for step in self.found.steps if not self.reasons[step.key]]

    @property
    def images(self) -> int:
        """Count the images."""
        return sum(sample.number for sample in self.samples)

    @cached_property
    def labels(self) -> Tensor | None:
        """The labels of all images, or None."""
        labels = [sample.labels for sample in self.samples if sample.labels is not None]
        return torch.cat(labels) if labels else None

    @cached_property
    def before(self) -> Tensor:
        """The whole network's `answers`."""
        return self.answers()

    @cached_property
    def is_text(self) -> bool:
        """Whether the batches say which token follows at each place, and the network speaks of
        it."""
        first = self.samples[0]
        if first.following is None:
            return False
        with evaluating(self.network):
            return speaks_of(call(self.network, first.inputs), first.following)

    @cached_property
    def loss_before(self) -> float | None:
        """The whole network's `loss`; None without classes or tokens."""
        return self.loss() if self.is_text or self.labels is not None else None

    def loss(self, left_out: Collection[StepKey] = ()) -> float:
        """Cross-entropy without these steps: mean over images, or over the tokens of a text."""
        if self.is_text:
            with self._without(left_out):
                return text_loss(self.network, self.samples)
        assert self.labels is not None, "asked for if there are labels or tokens"
        return loss(self.answers(left_out) if left_out else self.before, self.labels)

    def answers(self, left_out: Collection[StepKey] = ()) -> Tensor:
        """Return what the network returns without these steps: (images, values), in float64."""
        with self._without(left_out):
            return run_on(self.network, self.samples)

    def outputs(
        self, read: Callable[[object], Tensor], left_out: Collection[StepKey] = ()
    ) -> list[Tensor]:
        """Return what `read` makes of the network's output without these steps, batch by batch."""
        with self._without(left_out):
            return [read(call(self.network, each.inputs)) for each in self.samples]

    @contextmanager
    def _without(self, left_out: Collection[StepKey]) -> Iterator[None]:
        observer = LeavesOut(left_out)
        with evaluating(self.network), watching(self.network, observer, found=self.found):
            yield


def run_on(network: nn.Module, samples: Sequence[Sample]) -> Tensor:
    """Return what `network` returns for all samples: (images, values), in float64."""
    return torch.cat([flat_answers(call(network, each.inputs), each.number) for each in samples])


def flat_answers(output: object, number: int) -> Tensor:
    """All numbers that a network returned for each of `number` inputs, side by side."""
    parts = [tensor for _, tensor in leaves(output) if is_number(tensor)]
    if not parts or any(part.ndim == 0 or len(part) != number for part in parts):
        shapes = ", ".join(str(tuple(part.shape)) for part in parts) or "no numbers"
        raise InputError(
            f"Expected a network that returns numbers for each of {number} inputs along the first "
            f"axis but got {shapes}."
        )
    return torch.cat([part.detach().double().cpu().flatten(1) for part in parts], 1)


def loss(answers: Tensor, labels: Tensor) -> float:
    """Cross-entropy, mean over images."""
    check_labels(answers, labels)
    return float(F.cross_entropy(answers, labels.cpu()))


def text_loss(network: nn.Module, samples: Sequence[Sample]) -> float:
    """Cross-entropy of the tokens that follow, in nats per token over all that count."""
    parts = []
    for each in samples:
        assert each.following is not None, "samples of a text"
        parts.append(token_loss(call(network, each.inputs), each.following))
    return mean_token_loss(parts)
