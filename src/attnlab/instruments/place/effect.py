"""By predicted effect: the gradient of the loss with respect to a gate that is one everywhere.

Put a gate g = 1 on every branch, one value per image and channel. The network is unchanged, and
∂loss/∂g says how much the loss would move if the gate did: Σ_c |∂ℓ/∂g_c| per image is the first
order of what the best move by one unit in every channel gains. One backward pass, no training. It
is the saliency |g ⊙ ∂ℓ/∂g| at g = 1 of SNIP (Lee, Ajanthan and Torr, ICLR 2019) and the first-order
Taylor criterion of Molchanov et al. (ICLR 2017), asked about gates that do not exist yet.
"""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab._errors import InputError
from attnlab.instruments.place.gate_spread import check_classes, classes_note, labelled
from attnlab.instruments.place.strategy import Placing, Scored, Strategy
from attnlab.residuals import Observer, SeenStep
from attnlab.residuals.example import evaluating
from attnlab.residuals.watching import watching


class _Gradients(Observer):
    """Sums Σ_c |∂ℓ/∂g_c| over images, per step."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = defaultdict(float)

    def step_seen(self, seen: SeenStep) -> None:
        label, branch = seen.step.label, seen.branch
        if not branch.requires_grad:
            raise InputError(
                f"No gradient reaches step {label}: the network computes it without gradients. "
                f"Choose another strategy, for example 'stiffest'."
            )
        value = branch.detach().clone()  # `out += x` overwrites it
        axis = seen.step.channel_axis
        places = [each for each in range(1, branch.ndim) if each != axis]

        def add(gradient: Tensor) -> None:
            product = (value * gradient).double()
            by_channel = product.sum(places) if places else product
            self.sums[label] += by_channel.abs().sum().item()

        branch.register_hook(add)


def predicted_effect(asked: Placing) -> Scored:
    """The largest first-order effect of a gate on the loss."""
    seen, images, outputs = _Gradients(), 0, 0
    classes: set[int] = set()
    first, _ = next(labelled(asked, "effect"))
    with (
        evaluating(asked.network),
        torch.enable_grad(),
        watching(asked.network, seen, first[:1]),
    ):
        for given, labels in labelled(asked, "effect"):
            # So that there are gradients in a network whose parameters are frozen; the product,
            # because a leaf that needs them must not be written to.
            inputs = given.detach().requires_grad_()
            output = asked.network(inputs * 1)
            check_classes(asked.network, output, labels)
            # The sum: each image's gradient is its own, whatever the size of the batch.
            loss = F.cross_entropy(output, labels, reduction="sum")
            torch.autograd.backward(loss, inputs=[inputs])
            images, outputs = images + len(inputs), output.shape[1]
            classes.update(labels.tolist())
    # In percent: what the loss moves by where every gate moves by a hundredth.
    scores = {label: total / images / 100 for label, total in seen.sums.items()}
    return Scored(
        scores,
        "change of the loss per 1 % of gate, predicted",
        images,
        notes=classes_note(classes, outputs),
    )


EFFECT = Strategy("effect", "first-order effect of a gate on the loss", "labels", predicted_effect)
