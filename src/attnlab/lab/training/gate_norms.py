"""Batch norms inside gates need enough values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from attnlab._errors import InputError
from attnlab.residuals.example import call, evaluating
from attnlab.surgery.insertion import attachments

LEAST = 8
"""Values that a norm must see of a channel. Of two, it sees which one is larger: ±1."""


def check_gate_norms(network: nn.Module, shape: Sequence[int], images: int) -> None:
    """Refuse to train a network on `images` per process where the batch norms of a gate, which see
    pooled features, would have too few values to take statistics of."""
    norms = {
        f"{name}.{inner}": module
        for name, attachment in attachments(network)
        for inner, module in attachment.named_modules()
        if isinstance(module, _BatchNorm)
    }
    if not norms:
        return
    found: dict[str, int] = {}
    with ExitStack() as hooks, evaluating(network):
        for name, norm in norms.items():
            hooks.enter_context(norm.register_forward_pre_hook(_counting(name, found)))
        parameter = next(network.parameters())
        call(network, torch.zeros(1, *shape, device=parameter.device, dtype=parameter.dtype))
    few = {name: images * values for name, values in found.items() if images * values < LEAST}
    if few:
        name, values = next(iter(few.items()))
        raise InputError(
            f"{len(few)} batch norms inside gates see pooled features, {values} values of a "
            f"channel at {images} images per process (the first is {name!r}): too few to take "
            f"statistics of, expected at least {LEAST}. Use {LEAST} images per process or more, "
            f"or a gate without such a norm, for example 'se'."
        )


def _counting(name: str, found: dict[str, int]) -> Callable[..., None]:
    def hook(_module: nn.Module, inputs: tuple[Any, ...]) -> None:
        features = inputs[0]
        found[name] = features.numel() // (features.shape[0] * features.shape[1])

    return hook
