"""`fuse()` with gates: those that are constant are folded first, the others move to the
convolutions that take the norms' place."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from functools import wraps
from typing import Any

from torch import nn

from attnlab._errors import FoldError
from attnlab.bridges.ultralytics._example import example_for
from attnlab.residuals import Attachment
from attnlab.surgery.folding.fold import fold
from attnlab.surgery.insertion import attachments, remove_attachments
from attnlab.surgery.insertion.host import attach


def fuses(fuse: Any) -> Any:
    """Their `BaseModel.fuse`, with gates."""

    @wraps(fuse)
    def fuse_with_gates(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.is_fused() or not dict(attachments(self)):
            return fuse(self, *args, **kwargs)
        network = _folded(self)
        moved = list(_take_off(network))
        fused = fuse(network, *args, **kwargs)
        for gate in moved:
            attach(fused, gate)
        return fused

    return fuse_with_gates


def _folded(network: Any) -> Any:
    """The network without the gates that are constant; said in their log."""
    from ultralytics.utils import LOGGER

    before = len(dict(attachments(network)))
    try:
        plain, receipt = fold(network, partial=True, example=example_for(network))
    except FoldError:  # none of them is constant
        return network
    LOGGER.info(
        f"attnlab: {len(receipt.sites)} of {before} gates folded into the layers before them, "
        f"relative change of the output in float64 {receipt.float64_change:.1e}"
    )
    return plain


def _take_off(network: nn.Module) -> Iterator[Attachment]:
    """Take off the gates behind norms that a fusion takes away; where they act is then the fused
    convolution."""
    moved = {}
    for name, gate in attachments(network):
        module = gate.site.module
        block, _, last = module.rpartition(".")
        if last == "bn" and gate.site.host == "output":
            kind = "conv" if hasattr(network.get_submodule(block), "conv") else "conv_transpose"
            moved[name] = (gate, replace(gate.site, module=f"{block}.{kind}"))
    stay = frozenset(name for name, _ in attachments(network)) - moved.keys()
    copies = {name: copy.deepcopy(gate) for name, (gate, _) in moved.items()}
    remove_attachments(network, keep=stay)
    for name, (_, site) in moved.items():
        copies[name].site = site
        yield copies[name]
