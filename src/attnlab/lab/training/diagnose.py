"""When the loss is no longer finite: at which step, and in which layer it began."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from attnlab._errors import AttnlabError


class NonFiniteLossError(AttnlabError, ArithmeticError):
    """The loss became infinite or NaN; the message names the step and the layer."""


def non_finite_loss(
    network: nn.Module,
    inputs: object,
    again: Callable[[], object],
    loss: float,
    epoch: int,
    step: int,
    rate: float,
    later: int = 0,
) -> NonFiniteLossError:
    """The error for a loss at `step` of `epoch`, both from 1; `again` computes a loss once more:
    this one, before the weights were changed, or the one that was at hand when it was seen, some
    steps `later`."""
    seen = f" It was seen {later} step{'' if later == 1 else 's'} later." if later else ""
    return NonFiniteLossError(
        f"The loss is {loss} at step {step} of epoch {epoch} (learning rate {rate:g}).{seen} "
        f"{offending_layer(network, inputs, again)} The run stopped; the last checkpoint is from "
        f"before. Lower lr, add warmup_epochs or clip, or use precision '32-true'."
    )


def offending_layer(network: nn.Module, inputs: object, again: Callable[[], object]) -> str:
    """One sentence on the first layer, in the order of execution, that makes a non-finite value."""
    tensors = [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor)]
    if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors):
        return "The images themselves are not finite."
    found: list[str] = []
    handles = [
        module.register_forward_hook(_watch(found, name, module))
        for name, module in network.named_modules()
        if not any(True for _ in module.children())
    ]
    try:
        with torch.no_grad():
            again()
    finally:
        for handle in handles:
            handle.remove()
    if found:
        return found[0]
    return "Every layer's output is finite: only the loss itself is not."


def _watch(found: list[str], name: str, module: nn.Module) -> object:
    def hook(_: nn.Module, inputs: tuple[object, ...], output: object) -> None:
        if found or not isinstance(output, Tensor) or torch.isfinite(output).all():
            return
        kind = type(module).__name__
        wrong = [key for key, p in module.named_parameters() if not torch.isfinite(p).all()]
        if wrong:
            found.append(
                f"The first layer that is not finite is {name!r} ({kind}): its {wrong[0]} is not, "
                f"since an earlier step."
            )
            return
        largest = max(
            (float(x.abs().max()) for x in inputs if isinstance(x, Tensor) and x.numel()),
            default=float("nan"),
        )
        found.append(
            f"The first layer whose output is not finite is {name!r} ({kind}); its largest input "
            f"was {largest:.3g}."
        )

    return hook
