"""The structure that a fold leaves, without its weights: for reading a folded network again."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from attnlab.residuals.example import Example
from attnlab.surgery.exchange import exchange
from attnlab.surgery.folding._affine import add_affine
from attnlab.surgery.folding._fuse import fuse


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
        fuse(network, example)
