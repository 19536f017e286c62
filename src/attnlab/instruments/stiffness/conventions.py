"""The neural stiffness index (NSI) of a step, in four named conventions.

Z. Huang et al., "Understanding Self-attention Mechanism via Dynamical System Perspective", ICCV
2023, definition 1: ‖(x_{t+1} − x_t) / Δt‖ / ‖x_t‖, per input, norms over all but the batch.

The definition leaves open what x_{t+1} is in a block that ends in a ReLU, and what dividing by a
gate of many values means. The choices, each by name (the names are ours):

* `state`: ‖x_{t+1} − x_t‖ / ‖x_t‖ of consecutive block outputs, after the last activation, Δt = 1.
* `normed`: as `state`, and after the norm that a post-norm network (BERT) puts after the addition:
  the states that it really passes on. Where no such norm follows, it is `state`.
* `branch`: ‖f ⊗ Δt‖ / ‖x_t‖, what is really added, before the last activation.
* `paper`: ‖f‖ / ‖x_t‖, the branch before its gate, which is what dividing by the gate gives.

Dividing by a gate of 0.5 doubles `paper` and leaves `branch` alone: under `paper` a network with
attention can score higher by convention alone.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from attnlab._errors import unknown_name
from attnlab.instruments.stiffness.choices import CONVENTIONS, Convention

PerStep = Float[Tensor, "inputs steps"]
"""One value per input and step, in the order the network runs them."""


class StepNorms(NamedTuple):
    """The 2-norms of every step of every input; all an NSI needs."""

    shortcut: PerStep
    """‖x_t‖."""
    branch: PerStep
    """‖f(x_t)‖, before the gate."""
    update: PerStep
    """‖f(x_t) ⊗ Δt‖, what is added; equals `branch` without a gate."""
    change: PerStep
    """‖x_{t+1} − x_t‖, after the block's last activation."""
    normed_change: PerStep
    """‖x_{t+1} − x_t‖, after the norm that follows the addition as well, if there is one."""


def nsi(norms: StepNorms, convention: Convention = "state") -> PerStep:
    """NSI per input and step; NaN where ‖x_t‖ is zero, so that such inputs can be counted."""
    if convention == "state":
        rate = norms.change
    elif convention == "normed":
        rate = norms.normed_change
    elif convention == "branch":
        rate = norms.update
    elif convention == "paper":
        rate = norms.branch
    else:
        raise unknown_name("NSI convention", convention, CONVENTIONS)
    defined = norms.shortcut > 0
    # The inner `where` keeps the gradient of the unused division finite.
    ratio = rate / torch.where(defined, norms.shortcut, 1.0)
    return torch.where(defined, ratio, torch.nan)
