"""`trajectory(network)`: the states of some images after every step, all images at once."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from attnlab._errors import DoesNotApplyError, InputError, StepsNotFoundError
from attnlab.instruments.different import ENOUGH, DifferentInputs
from attnlab.instruments.measurement import MeasureConfig, Measurement
from attnlab.instruments.stiffness.capture import Captured
from attnlab.instruments.stiffness.conventions import nsi
from attnlab.instruments.stiffness.plan import Plan, plan_steps
from attnlab.instruments.trajectory.result import TrajectoryResult, TrajectoryStep
from attnlab.instruments.trajectory.similarity import inner_products, unit_products
from attnlab.residuals import SeenStep, StepKey
from attnlab.residuals.example import evaluating, uncompiled
from attnlab.residuals.inputs import Batches, Inputs, inputs_of
from attnlab.residuals.watching import watching
from attnlab.subject import Source, Subject, subject_of

IMAGES = 64
"""Every pair of them is compared, in one forward of all."""


def trajectory(
    network: Source, loader: Batches | None = None, *, name: str | None = None
) -> TrajectoryResult:
    """Where the states of a network go: after every step, how alike they are to those of other
    images, in a form by which networks with other channels can be compared (linear CKA, debiased),
    and NSI.

    Runs once in eval mode without gradients, on 64 images at once unless the limit is another.

    Args:
        network: any network with residual steps, as for `attnlab.open`.
        loader: batches in the place of the network's own images: tensors, or tuples whose first
            element is one.
        name: of the network, for the report.
    """
    began = time.perf_counter()
    subject = subject_of(network, loader)
    model = uncompiled(subject.network)
    images = _together(subject.inputs(IMAGES), model, subject.limit or IMAGES)
    plan = plan_steps(model, images[:1])
    seen = _States(plan)
    with evaluating(model), watching(model, seen, found=plan.found):
        model(images)
    lengths = nsi(seen.norms, "state").double().nanmean(0).tolist()
    steps = zip(plan.steps, lengths, strict=True)
    found = TrajectoryResult(
        network=name or subject.name,
        images=len(images),
        images_checksum=_checksum(images),
        steps=tuple(
            TrajectoryStep(step.label, length, _rounded(unit_products(seen.products[step.key])))
            for step, length in steps
        ),
        seconds=time.perf_counter() - began,
    )
    return subject.sign(found)


class _States(Captured):
    """The inner products of the states after every step, beside their norms."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.products: dict[StepKey, Tensor] = {}

    def step_seen(self, seen: SeenStep) -> None:
        super().step_seen(seen)
        activation = self.plan.activations[seen.step.key]
        with torch.no_grad():
            after = seen.shortcut + seen.branch
            after = after if activation is None else activation(after)
            self.products[seen.step.key] = inner_products(after.reshape(self._inputs, -1))


def _together(batches: Batches, model: nn.Module, number: int) -> Tensor:
    """The first images of all batches as one batch."""
    found: list[Tensor] = []
    for inputs in _inputs(batches, model):
        if not isinstance(inputs, Tensor) or (found and found[0].shape[1:] != inputs.shape[1:]):
            raise InputError(
                "Expected images of one size, in batches that are tensors or begin with one: all "
                "images of a trajectory go through the network together."
            )
        found.append(inputs)
        if sum(map(len, found)) >= number:
            break
    images = torch.cat(found)[:number] if found else torch.empty(0)
    different = DifferentInputs()
    different.see((images,), {})
    if not different.enough:
        raise InputError(
            f"Expected at least {ENOUGH} different images but got {different.number}: a trajectory "
            f"says how alike the states of different images are."
        )
    return images


def _inputs(batches: Batches, model: nn.Module) -> Iterator[Inputs]:
    for batch in batches:
        yield from inputs_of(batch, model)


def _checksum(images: Tensor) -> str:
    return hashlib.sha256(images.detach().float().cpu().contiguous().numpy().tobytes()).hexdigest()


def _rounded(values: Tensor) -> tuple[float, ...]:
    """Six digits: CKA is then right to 1e-6, and a run's file is a third as long."""
    return tuple(float(f"{value:.6g}") for value in values.tolist())


class TrajectoryMeasurement(Measurement):
    """The trajectory of a finished network on test images, for its distance to other networks."""

    name = "trajectory"

    def settings(self, config: MeasureConfig) -> dict[str, int] | None:
        return {"images": config.trajectory} if config.trajectory else None

    def measure(self, subject: Subject, config: MeasureConfig, folder: Path) -> TrajectoryResult:
        del folder
        try:
            return trajectory(replace(subject, limit=config.trajectory))
        except (StepsNotFoundError, InputError) as error:
            raise DoesNotApplyError(str(error)) from None
