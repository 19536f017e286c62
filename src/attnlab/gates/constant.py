"""Gates that are learned numbers, the same for every input.

* LayerScale (Touvron et al., ICCV 2021): `gate = λ`, one number per channel, small at first.
* ReZero (Bachlechner et al., UAI 2021): `gate = α`, one number per step, 0 at first, so that the
  network starts as the identity.

Neither pools nor looks at anything, so they are causal, and `attnlab.fold` takes them away.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab._errors import OptionError
from attnlab.gates._gate import ANY_RANK, ConstantGate


class LayerScale(ConstantGate):
    """One learned number per channel, at first `initial`.

    The paper starts at 0.1 up to 18 blocks, at 1e-5 up to 24, and at 1e-6 in deeper networks.
    """

    ranks = ANY_RANK

    def __init__(self, channels: int, initial: float = 0.1) -> None:
        super().__init__(channels)
        _check_finite("initial", initial)
        if initial == 0:
            raise OptionError(
                "LayerScale starts small but not at 0. For a start at 0 take the gate 'rezero'."
            )
        self.scales = nn.Parameter(torch.full((channels,), float(initial)))

    def constant(self) -> Float[Tensor, " channels"]:
        return self.scales

    def start_constant(self) -> float:
        nn.init.ones_(self.scales)
        return 1.0


class ReZero(ConstantGate):
    """One learned number for all channels of a step, at first `initial`, which is 0 in the
    paper."""

    ranks = ANY_RANK

    def __init__(self, channels: int, initial: float = 0.0) -> None:
        super().__init__(channels)
        _check_finite("initial", initial)
        self.alpha = nn.Parameter(torch.full((1,), float(initial)))

    def constant(self) -> Float[Tensor, " channels"]:
        return self.alpha.expand(self.channels)

    def start_constant(self) -> float:
        nn.init.ones_(self.alpha)
        return 1.0


def _check_finite(name: str, value: float) -> None:
    if not math.isfinite(value):
        raise OptionError(f"Expected {name} to be a finite number but got {value}.")
