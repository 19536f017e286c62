"""A network on images, with any of its steps left out: what rankings and curves are made of."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab._errors import InputError
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
        """How many."""
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

    def answers(self, left_out: Collection[StepKey] = ()) -> Tensor:
        """What the network returns without these steps: (images, values), in float64."""
        observer = LeavesOut(left_out)
        with evaluating(self.network), watching(self.network, observer, found=self.found):
            return run_on(self.network, self.samples)

    def outputs(
        self, read: Callable[[object], Tensor], left_out: Collection[StepKey] = ()
    ) -> list[Tensor]:
        """What `read` makes of the network's output without these steps, batch by batch."""
        observer = LeavesOut(left_out)
        with evaluating(self.network), watching(self.network, observer, found=self.found):
            return [read(call(self.network, each.inputs)) for each in self.samples]


def run_on(network: nn.Module, samples: Sequence[Sample]) -> Tensor:
    """What `network` returns for all samples: (images, values), in float64."""
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
