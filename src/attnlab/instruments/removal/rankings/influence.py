"""Block influence: how far a step turns the state, 1 − cosine of what goes in and what comes out.

X. Men et al., "ShortGPT: Layers in Large Language Models are More Redundant Than You Expect",
Findings of ACL 2025, arXiv 2403.03853: BI = 1 − E[xᵀ y / ‖x‖‖y‖], the mean over tokens. A feature
map has no tokens; its cosine is that of the whole map (ours). Of several streams, x is all
streams of a token, and what a matrix carries on is compared with what comes out (ours).
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from jaxtyping import Float
from torch import Tensor

from attnlab._errors import InputError
from attnlab.instruments.removal.rankings.ranking import Ranking, Scores
from attnlab.instruments.removal.trial import RemovalTrial
from attnlab.instruments.stiffness.plan import Plan
from attnlab.residuals import Observer, SeenStep, StepKey
from attnlab.residuals.example import call, evaluating
from attnlab.residuals.watching import watching
from attnlab.surgery.change import mean_image_change
from attnlab.surgery.shortening.operation import named
from attnlab.surgery.words import MEAN_IMAGE_CHANGE


def influence(
    state: Tensor, following: Tensor, channel_axis: int, stream_axis: int = -1
) -> Float[Tensor, " vectors"]:
    """1 − cosine of a state and the next one: per token if there are tokens, else per input."""
    if stream_axis == 2 and state.ndim == 4:
        vectors = (x.movedim(channel_axis, -1).flatten(2).flatten(0, 1) for x in (state, following))
    elif state.ndim == 3:
        vectors = (x.movedim(channel_axis, -1).flatten(0, 1) for x in (state, following))
    else:
        vectors = (x.flatten(1) for x in (state, following))
    before, after = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in vectors)
    length = before.norm(dim=1) * after.norm(dim=1)
    defined = length > 0
    return 1 - (before * after).sum(1)[defined] / length[defined]


class _Turns(Observer):
    """Adds up the influence of every step."""

    def __init__(self, planned: Plan) -> None:
        self.activations = planned.activations
        self.sums: dict[StepKey, float] = {}
        self.counts: dict[StepKey, int] = {}

    def step_seen(self, seen: SeenStep) -> None:
        key = seen.step.key
        following = seen.shortcut + seen.branch
        activation = self.activations[key]
        if activation is not None:
            following = activation(following)
        found = influence(
            seen.shortcut, following, seen.step.channel_axis, seen.step.form.stream_axis
        )
        self.sums[key] = self.sums.get(key, 0.0) + float(found.double().sum())
        self.counts[key] = self.counts.get(key, 0) + len(found)


def influences(trial: RemovalTrial, left_out: Collection[StepKey] = ()) -> Scores:
    """Return the influence of each step, mean over tokens or inputs; one run of the whole
    network."""
    del left_out
    observer = _Turns(trial.plan)
    with evaluating(trial.network), watching(trial.network, observer, found=trial.found):
        for sample in trial.samples:
            call(trial.network, sample.inputs)
    for step in trial.candidates:
        if not observer.counts[step.key]:
            raise InputError(
                f"The state of step {named(step)} is zero on all images, so it has no "
                f"direction. Choose another ranking: by='output'."
            )
    return {
        step.key: observer.sums[step.key] / observer.counts[step.key] for step in trial.candidates
    }


INFLUENCE = Ranking(
    "influence",
    "block influence (1 − cosine)",
    influences,
    source="Men et al., ShortGPT, arXiv 2403.03853",
)


def output_changes(trial: RemovalTrial, left_out: Collection[StepKey] = ()) -> Scores:
    """Return, for each further step, `mean_image_change` from the whole network's output."""
    scores = {}
    for step in trial.candidates:
        if step.key not in left_out:
            after = trial.answers({*left_out, step.key})
            scores[step.key] = mean_image_change(trial.before, after)
    return scores


OUTPUT = Ranking("output", MEAN_IMAGE_CHANGE, output_changes, again=True)


def require_loss(trial: RemovalTrial) -> float:
    """The loss of the whole network; an `InputError` where nothing says what is right."""
    if trial.loss_before is None:
        raise InputError(
            "The ranking 'loss' needs labels, and the images have none. Expected batches that are "
            "pairs of images and classes (whole numbers), or of tokens (inputs, places) and the "
            "token that follows at each place; or a ranking without labels: by='output'."
        )
    return trial.loss_before


def loss_changes(trial: RemovalTrial, left_out: Collection[StepKey] = ()) -> Scores:
    """Return, for each further step, the cross-entropy without it minus that of the whole
    network."""
    whole = require_loss(trial)
    return {
        step.key: trial.loss({*left_out, step.key}) - whole
        for step in trial.candidates
        if step.key not in left_out
    }


LOSS = Ranking("loss", "change of the loss", loss_changes, again=True, needs_labels=True)
