"""SI of every step of a network: Arnoldi on the branch Jacobian inside one recorded forward."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge, saved_tensors_hooks

from attnlab._errors import InputError, OptionError, unknown_name
from attnlab.instruments.stiffness.plan import Plan, plan_steps
from attnlab.instruments.stiffness.spectrum import FEWEST_VECTORS, SpectralIndex, transposed_index
from attnlab.residuals import Observer, SeenStep, Step, StepKey
from attnlab.residuals.example import Example, uncompiled
from attnlab.residuals.watching import watching

Map = Literal["branch", "state"]


class StepIndex(NamedTuple):
    """SI of one step for every input, or why there is none."""

    step: Step
    spectral: SpectralIndex | None
    reason: str


class StepMap(NamedTuple):
    """A step's map inside the autograd graph of one forward."""

    state: Tensor
    edge: GradientEdge
    rate: Tensor


class StepMaps(Observer):
    """Keeps, for each step, the state's place in the autograd graph and a copy of the branch."""

    def __init__(self, plan: Plan, of: Map) -> None:
        self.plan = plan
        self.of = of
        self.maps: dict[StepKey, StepMap | str] = {}
        """Of each step that was seen, or why it has none."""

    def step_seen(self, seen: SeenStep) -> None:
        shortcut, branch, key = seen.shortcut, seen.branch, seen.step.key
        if not torch.is_grad_enabled():
            self.maps[key] = (
                "it runs without gradients, as inside a re-entrant checkpoint: use_reentrant=False"
            )
        elif not (shortcut.requires_grad and branch.requires_grad):
            self.maps[key] = "the step does not depend on the input"
        else:
            # The edge and the copy are taken now: an in-place addition re-labels its operand.
            rate, activation = branch.clone(), self.plan.activations[key]
            if self.of == "state" and activation is not None:
                # A checkpoint around the step must not count what is saved here.
                with saved_tensors_hooks(lambda saved: saved, lambda saved: saved):
                    rate = activation(shortcut + branch) - shortcut
            self.maps[key] = StepMap(shortcut.detach(), get_gradient_edge(shortcut), rate)


def step_indices(
    model: nn.Module,
    images: Tensor,
    *,
    vectors: int = FEWEST_VECTORS,
    of: Map = "branch",
    accept_artefact: bool = False,
    example: Example | None = None,
    seed: int = 0,
) -> list[StepIndex]:
    """SI of every step of `model` at every one of `images`.

    Args:
        model: in eval mode; batch statistics would couple the inputs.
        images: a few inputs; each costs `vectors` backward passes per branch.
        vectors: dimension of the Krylov space, see `krylov_stiffness_index`.
        of: the map whose Jacobian is taken. `branch` is the right-hand side f ⊗ Δt of the step.
            `state` is x_{t+1} − x_t after the activation. After a ReLU every switched-off unit of
            that map has an eigenvalue of exactly −1, so that SI ≥ 1 whatever the network does.
        accept_artefact: take the Jacobian of the `state` map in spite of that.
        example: an input to find the steps with; the first of `images` when None.
        seed: of the random first vector.
    """
    if of not in ("branch", "state"):
        raise unknown_name("map", of, ("branch", "state"))
    model = uncompiled(model)
    _check_eval(model)
    found = plan_steps(model, images[:1] if example is None else example)
    rectified = [step for step in found.steps if found.activations[step.key] is torch.relu]
    if of == "state" and rectified and not accept_artefact:
        raise OptionError(
            f"The state after step {rectified[0].label} ({rectified[0].name}) is cut by a ReLU, so "
            f"every switched-off unit has an eigenvalue of exactly -1 and SI is at least 1, "
            f"whatever the network does. Use of='branch', or accept_artefact=True to see it."
        )
    seen = StepMaps(found, of)
    with watching(model, seen, found=found.found), torch.enable_grad():
        model(images.detach().clone().requires_grad_(True))
    unseen = "the network does not make it on these images"
    return [_index(step, seen.maps.get(step.key, unseen), vectors, seed) for step in found.steps]


def _check_eval(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if module.training and isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise InputError(
                f"Expected the network in eval mode but {name!r} is a BatchNorm in training mode, "
                f"whose output for one input depends on all others. Call model.eval() first."
            )


def _index(step: Step, taken: StepMap | str, vectors: int, seed: int) -> StepIndex:
    if step.kind != "identity":
        return StepIndex(step, None, "the shortcut is a projection, not the state itself")
    if isinstance(taken, str):
        return StepIndex(step, None, taken)
    state, edge, rate = taken

    def transposed(vector: Tensor) -> Tensor:
        try:
            product = torch.autograd.grad(
                rate, edge, vector.reshape_as(rate), retain_graph=True, allow_unused=True
            )[0]
        except RuntimeError as error:
            if "modified by an inplace operation" not in str(error):
                raise
            raise _NoJacobianError(
                "the state is overwritten in place, so it has no backward pass"
            ) from error
        if product is None:
            raise _NoJacobianError("the branch reads another arrangement of the state")
        return product.reshape_as(vector)

    try:
        return StepIndex(step, transposed_index(transposed, state, vectors=vectors, seed=seed), "")
    except _NoJacobianError as error:
        return StepIndex(step, None, str(error))


class _NoJacobianError(Exception):
    """Why autograd has no Jacobian of the branch."""
