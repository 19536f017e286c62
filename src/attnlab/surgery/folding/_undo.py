"""Let another reader of a scaled tensor undo the scaling on its input.

Squeeze-and-excitation looks at the tensor that a gate behind it would have scaled; GhostNet's cheap
operation computes one half of the branch from the other. Once the layer before has taken the gate,
such a reader sees `v ⊗ x` in the place of `x`; the first layer on its way takes `1 / v` on its
input channels, and computes what it did.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

import torch
from torch import Tensor

from attnlab.surgery.folding._flow import Flow
from attnlab.surgery.folding._forward import walk_on
from attnlab.surgery.folding._ids import NOT_READ
from attnlab.surgery.folding._walk import Scaling, Undo, walk_back


def undoing(flow: Flow, keep: int, foldable: Set[str], barriers: Set[int]) -> Undo:
    """What finds the parameters that must be divided by the gates, so that a reader computes from
    the scaled tensor what it did from the plain one."""

    def undo(source: int, ids: Tensor, reader: int) -> Scaling:
        scaled = torch.where(ids == NOT_READ, keep, ids)
        demands, not_negative = walk_on(flow, source, scaled, keep, barriers, reader)
        found = walk_back(flow, demands, keep, foldable, barriers)
        return replace(found, not_negative=found.not_negative | not_negative)

    return undo
