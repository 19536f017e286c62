"""How much of TNS a step has on its own: its rectangle z (z/μ − 1)₊ of stiff degrees, over TNS.

Most steps lie below the mean NSI of their stage and have none, so most of this ranking is a tie.
Ties are decided by NSI. The first step of a stage does not count for TNS and for μ; to be ranked at
all, it is compared with the mean of the others.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from attnlab._errors import InputError
from attnlab.instruments.removal.rankings.ranking import Ranking, Scores
from attnlab.instruments.removal.trial import RemovalTrial
from attnlab.instruments.stiffness import nsi, tns
from attnlab.instruments.stiffness.capture import capture
from attnlab.instruments.stiffness.stages import kept_steps, relative_excess
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


_TIE = 1e-9
"""Of NSI, added: far below any share that can be told from zero."""


def step_shares(nsi: Tensor, stages: Tensor) -> Tensor:
    """Every step's share of TNS, (inputs, steps); 0 where TNS is 0. NSI is (inputs, steps)."""
    kept = kept_steps(stages)
    areas = torch.zeros_like(nsi)
    for stage in stages.unique().tolist():
        members = stages == stage
        if bool((members & kept).any()):
            mean = nsi[:, members & kept].mean(1, keepdim=True)
            excess = relative_excess(nsi[:, members], mean).clamp(min=0)
            areas[:, members] = nsi[:, members] * excess
    total = tns(nsi, stages)[:, None]
    return torch.where(total > 0, areas / torch.where(total > 0, total, 1.0), 0.0)


def tns_shares(trial: RemovalTrial, left_out: Collection[StepKey] = ()) -> Scores:
    """Mean over images; one run of the whole network."""
    del left_out
    values = step_nsi(trial)
    stage = {step.key: step.stage for step in trial.found.steps}
    stages = torch.tensor([stage[key] for key in values])
    table = torch.stack(list(values.values()), 1)
    table = table[table.isfinite().all(1)]
    if not len(table):
        raise InputError(
            "TNS is not defined on any image: the state of a step is zero on each. Choose another "
            "ranking: by='output'."
        )
    means = (step_shares(table, stages) + _TIE * table).mean(0)
    scores = dict(zip(values, means.tolist(), strict=True))
    return {step.key: scores[step.key] for step in trial.candidates}


TNS = Ranking("tns", "share of TNS", tns_shares, source="Huang et al., ICCV 2023")
