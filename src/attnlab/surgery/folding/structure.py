"""The structure that a fold leaves, without its weights: for reading a folded network again."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from attnlab._errors import FoldError
from attnlab.residuals.example import Example
from attnlab.surgery.double import exchange
from attnlab.surgery.folding._fuse import merge_in_double


def add_affine(network: nn.Module, name: str) -> None:
    """Add weight and bias to the norm `name`, in the dtype and on the device of the network."""
    norm = network.get_submodule(name)
    parameters = (p for p in network.parameters() if p.is_floating_point())
    like = next(parameters, torch.empty(0))
    if isinstance(norm, _NormBase):
        shape: tuple[int, ...] = (norm.num_features,)
        norm.affine = True
    elif isinstance(norm, nn.GroupNorm):
        shape = (norm.num_channels,)
        norm.affine = True
    elif isinstance(norm, (nn.LayerNorm, nn.RMSNorm)):
        shape = tuple(norm.normalized_shape)
        norm.elementwise_affine = True
    else:
        raise FoldError(
            f"{name!r} is a {type(norm).__name__}, which is not a norm of torch.nn, so no affine "
            f"parameters can be added to it."
        )
    norm.weight = nn.Parameter(torch.ones(shape, dtype=like.dtype, device=like.device))
    if not isinstance(norm, nn.RMSNorm):
        norm.bias = nn.Parameter(torch.zeros(shape, dtype=like.dtype, device=like.device))


def restructure(
    network: nn.Module,
    *,
    removed: Sequence[str] = (),
    affine: Sequence[str] = (),
    fused: bool = False,
    example: Example | None = None,
) -> None:
    """Do to a network just built what a fold did to its modules, as its receipt says it:
    take the `removed` ones out, give the `affine` norms parameters, merge where it was `fused`."""
    for name in removed:
        exchange(network, network.get_submodule(name), nn.Identity())
    for name in affine:
        add_affine(network, name)
    if fused:
        merge_in_double(network, example)
