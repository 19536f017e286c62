"""By stiffness: how far a step moves the features, relative to their length.

The StepNet paper (Huang et al., ICCV 2023) argues that attention acts where a trajectory is stiff,
and that few steps are. NSI by the convention `state`; the first step of every stage has none that
counts, so its block is never chosen.
"""

from __future__ import annotations

import warnings

import torch

from attnlab._errors import InputError
from attnlab.instruments.place.strategy import Placing, Scored, Strategy
from attnlab.instruments.stiffness import StiffnessResult, StiffnessWarning, nsi, tns, usable
from attnlab.instruments.stiffness.capture import capture
from attnlab.instruments.stiffness.measure import stiffness
from attnlab.instruments.stiffness.stages import kept_members, pick, step_excess
from attnlab.residuals.example import call, evaluating
from attnlab.residuals.inputs import head, inputs_of

_FIRST = "the first step of a stage has no NSI that counts"


def by_stiffness(asked: Placing) -> Scored:
    """Score every step by its mean NSI: gates go to the stiffest."""
    found = _measured(asked)
    scores = {step.label: step.mean for step in found.nsi if step.kept}
    details = {s.label: f"± {s.spread:.3g} over images" for s in found.nsi}
    return Scored(
        scores, "NSI", found.inputs, details=details, notes=_notes(found), unscored=_FIRST
    )


def by_softness(asked: Placing) -> Scored:
    """The smallest mean NSI: the opposite choice, as a control."""
    found = by_stiffness(asked)
    return Scored(
        found.scores,
        found.quantity,
        found.images,
        largest=False,
        details=found.details,
        notes=found.notes,
        unscored=found.unscored,
    )


def by_nsi_spread(asked: Placing) -> Scored:
    """The largest standard deviation of NSI over images."""
    found = _measured(asked)
    scores = {step.label: step.spread for step in found.nsi if step.kept}
    details = {step.label: f"around a mean of {step.mean:.3g}" for step in found.nsi}
    quantity = "spread of NSI over images"
    return Scored(
        scores, quantity, found.inputs, details=details, notes=_notes(found), unscored=_FIRST
    )


def by_share_of_tns(asked: Placing) -> Scored:
    """The largest share of TNS: a step's own rectangle z (z/μ − 1)₊ over TNS, mean over images.

    Shares add up to more than one where rectangles overlap.
    """
    batches = (inputs for batch in asked.loader for inputs in inputs_of(batch, asked.network))
    first = next(batches)
    images = stiff = 0
    with evaluating(asked.network), capture(asked.network, head(first, 1)) as steps:
        members = kept_members(steps.stages)
        sums = torch.zeros(len(steps.stages), dtype=torch.float64)
        for batch in asked.loader:
            for inputs in inputs_of(batch, asked.network):
                call(asked.network, inputs)
                values = nsi(steps.norms, "state").detach().double().cpu()
                values = values[usable(values, steps.stages)]
                total = tns(values, steps.stages)
                images, stiff = images + len(values), stiff + int((total > 0).sum())
                values, total = values[total > 0], total[total > 0]
                for stage in members:
                    z = pick(values, stage)
                    sums[stage] += (z * step_excess(z).clamp(min=0) / total[:, None]).sum(0)
        labels = [step.label for step in steps.plan.steps]
    if not stiff:
        raise InputError(
            f"TNS is 0 for all {images} images, so no step has a share of it: no stage keeps more "
            f"than one step after its first, or every branch is zero. Choose another strategy."
        )
    kept = sorted(step for stage in members for step in stage)
    scores = {labels[step]: (sums[step] / stiff).item() for step in kept}
    return Scored(scores, "share of TNS", images, unscored=_FIRST)


def _measured(asked: Placing) -> StiffnessResult:
    with warnings.catch_warnings():
        # That TNS is zero in so shallow a network says nothing about NSI.
        warnings.simplefilter("ignore", StiffnessWarning)
        found = stiffness(asked.network, asked.loader, progress=False)
    if not any(step.kept for step in found.nsi):
        raise InputError(
            "No stage keeps a step after its first, so none has an NSI that counts. Choose another "
            "strategy, for example 'effect'."
        )
    return found


def _notes(found: StiffnessResult) -> tuple[str, ...]:
    skipped = f"{found.skipped} images were skipped: a norm is zero or not finite"
    return (skipped,) if found.skipped else ()


STIFFEST = Strategy("stiffest", "largest mean NSI", "images", by_stiffness)
SOFTEST = Strategy(
    "softest", "smallest mean NSI: the opposite, as a control", "images", by_softness
)
NSI_SPREAD = Strategy("nsi-spread", "NSI that differs most between images", "images", by_nsi_spread)
TNS = Strategy("tns", "largest share of TNS", "images", by_share_of_tns)
