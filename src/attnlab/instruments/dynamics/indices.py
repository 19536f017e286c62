"""The stiffness index SI and the stiffness-aware index SAI of an ordinary differential equation.

For du/dt = f(u): SI(u) = max |Re λ| over the eigenvalues of ∂f/∂u (Aiken, Stiff Computation, 1985);
SAI(u) = ‖du/dt‖ / ‖u‖, which needs observations only (Liang et al., ICLR 2021). SAI measures how
fast the solution varies, SI how fast it could: neither is a proxy for the other, see `theorem2`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from attnlab._errors import InputError

States = Float[Tensor, "times size"]
RightHandSide = Callable[[Float[Tensor, " size"]], Float[Tensor, " size"]]
"""f of du/dt = f(u), written in torch, for one state."""


def stiffness_index(rhs: RightHandSide, states: States) -> Float[Tensor, " times"]:
    """SI at every state, from the autograd Jacobian and all its eigenvalues."""
    jacobians = torch.func.vmap(torch.func.jacrev(rhs))(states)
    return torch.linalg.eigvals(jacobians).real.abs().amax(1)


def stiffness_aware_index(rhs: RightHandSide, states: States) -> Float[Tensor, " times"]:
    """SAI at every state, from the right-hand side: ‖f(u)‖ / ‖u‖."""
    return torch.func.vmap(rhs)(states).norm(dim=1) / states.norm(dim=1)


def observed_stiffness_aware_index(
    states: States, times: Float[Tensor, " times"]
) -> Float[Tensor, " steps"]:
    """SAI of observations: ‖(u_{i+1} − u_i) / (t_{i+1} − t_i)‖ / ‖u_i‖, one fewer than times.

    A time step of 1/SI already underestimates a decaying solution by 37 %.
    """
    if len(states) != len(times) or len(times) < 2:
        raise InputError(
            f"Expected one time per state and at least two but got {len(states)} states and "
            f"{len(times)} times."
        )
    rates = states.diff(dim=0) / times.diff().unsqueeze(1)
    return rates.norm(dim=1) / states[:-1].norm(dim=1)
