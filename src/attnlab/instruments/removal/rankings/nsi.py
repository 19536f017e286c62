"""How stiff a step is: NSI, the length of the step relative to the state."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from attnlab._errors import InputError
from attnlab.instruments.removal.rankings.ranking import Ranking, Scores
from attnlab.instruments.removal.trial import RemovalTrial
from attnlab.instruments.stiffness import nsi
from attnlab.instruments.stiffness.capture import capture
from attnlab.residuals import StepKey
from attnlab.residuals.example import call, evaluating
from attnlab.surgery.shortening.operation import named


def step_nsi(trial: RemovalTrial) -> dict[StepKey, Tensor]:
    """NSI of every step, one value per image, in the convention `state`."""
    parts = []
    with evaluating(trial.network), capture(trial.network, trial.example) as steps:
        for sample in trial.samples:
            call(trial.network, sample.inputs)
            parts.append(nsi(steps.norms, "state").double().cpu())
        keys = [step.key for step in steps.plan.steps]
    return dict(zip(keys, torch.cat(parts).T, strict=True))


def mean_nsi(trial: RemovalTrial, left_out: Collection[StepKey] = ()) -> Scores:
    """Mean over images; one run of the whole network."""
    del left_out
    values = step_nsi(trial)
    scores = {}
    for step in trial.candidates:
        defined = values[step.key][values[step.key].isfinite()]
        if not len(defined):
            raise InputError(
                f"NSI of step {named(step)} is not defined on any image: its state is "
                f"zero. Choose another ranking: by='output'."
            )
        scores[step.key] = float(defined.mean())
    return scores


NSI = Ranking("nsi", "NSI", mean_nsi, source="Huang et al., ICCV 2023")
