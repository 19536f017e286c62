"""The first value of the scale that residual branches end in."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from attnlab._errors import OptionError, SiteError
from attnlab.residuals.branch_end import BranchEnd, branch_end
from attnlab.residuals.example import Example, run_once
from attnlab.residuals.graph import Graph
from attnlab.residuals.steps import find_steps, no_steps_error


def set_branch_scale(model: nn.Module, scale: float, example: Example | None = None) -> list[str]:
    """Let the norm in which each residual branch of `model` ends start with γ = `scale`; return
    the names of these norms.

    The control for gates, which start at a constant near a half: a plain network whose steps are
    as short, without a gate.
    """
    if not (math.isfinite(scale) and scale > 0):
        raise OptionError(f"Expected a scale of branches above 0 but got {scale}.")
    run = run_once(model, example)
    steps = find_steps(run.graph)
    if not steps:
        raise no_steps_error(model, run)
    modules = dict(model.named_modules())
    found: dict[str, Tensor] = {}
    for step in steps:
        end = branch_end(run.graph, step, modules)
        norm = "" if end is None else _norm(run.graph, end)
        weight = getattr(modules[norm], "weight", None) if norm else None
        if not isinstance(weight, nn.Parameter):
            raise SiteError(
                f"The branch of step {step.label} ({step.name}) does not end in a norm with a "
                f"scale of its own, so there is no scale to start at {scale:g}. Expected a network "
                f"whose branches end in a norm, as those of resnet20."
            )
        found[norm] = weight
    with torch.no_grad():
        for weight in found.values():
            weight.fill_(scale)
    return list(found)


def _norm(graph: Graph, end: BranchEnd) -> str:
    """The module whose scale the norm takes. It need not be the innermost that returns the norm's
    output: timm's hand that on through modules for an activation and dropout that do nothing."""
    owner = end.node.owner
    own = any(graph.nodes[index].name == f"{owner}.weight" for index in end.node.inputs)
    return owner if own else end.module
