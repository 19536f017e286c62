"""What lets a network of Ultralytics keep its gates.

Their programs do two things to a network that gates do not survive by themselves. A trainer builds
the network anew from its YAML and copies weights by name; `load` does that, so the gates are put
into the new network before it. `fuse()`, which every validation and export calls, takes away the
norms behind which gates may act: gates that are constant are folded first, the others move to the
convolutions that take the norms' place.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from functools import wraps
from typing import Any

from torch import nn

from attnlab._errors import FoldError, InputError
from attnlab.fold import fold
from attnlab.insert import Attachment, attachments, remove_attachments
from attnlab.insert.host import attach


class Kept:
    """What a network with gates carries. A file that holds it imports this module when it is read,
    so that the network keeps its gates there too."""

    def __init__(self, receipt: str) -> None:
        self.receipt = receipt


def keep_gates() -> None:
    """Let all networks of Ultralytics keep their gates, from now on in this process."""
    from ultralytics.nn.tasks import BaseModel

    if getattr(BaseModel.load, "keeps_gates", False):
        return
    BaseModel.load = _loads(BaseModel.load)
    # Subclasses have a fuse of their own that calls this one.
    BaseModel.fuse = _fuses(BaseModel.fuse)


def transplant(source: nn.Module, target: nn.Module) -> list[str]:
    """Put copies of the gates of `source` into `target`, a network of the same blocks; return their
    names."""
    copied = copy.deepcopy([gate for _, gate in attachments(source)])  # once: stages share a gate
    missing = [gate.site.module for gate in copied if not _has(target, gate.site.module)]
    if missing:
        raise InputError(
            f"The weights have {len(copied)} gates, and the network that they are loaded into has "
            f"no {missing[0]!r}, behind which one of them acts: it is another "
            f"architecture. Train the one that the gates were put into, or load weights without "
            f"gates."
        )
    for gate in copied:
        parameter = next(target.parameters())
        attach(target, gate.to(parameter.device, parameter.dtype))
    return [name for name, _ in attachments(target)]


def _loads(load: Any) -> Any:
    @wraps(load)
    def load_with_gates(self: Any, weights: Any, verbose: bool = True) -> Any:
        found = (weights.get("ema") or weights["model"]) if isinstance(weights, dict) else weights
        gates = dict(attachments(found)) if isinstance(found, nn.Module) else {}
        own = dict(attachments(self))
        if gates and not own:
            transplant(found, self)
            self.attention = found.attention if hasattr(found, "attention") else Kept("")
        elif gates and own.keys() != gates.keys():
            only = sorted(gates.keys() - own.keys()) or sorted(own.keys() - gates.keys())
            raise InputError(
                f"The weights and the network have different gates: {only[0]!r} is in one of them "
                f"only. Load them into a network without gates, which takes theirs."
            )
        return load(self, weights, verbose)

    load_with_gates.keeps_gates = True  # type: ignore[attr-defined]
    return load_with_gates


def _fuses(fuse: Any) -> Any:
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

    from attnlab.bridges.ultralytics.insert import example_for

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


def _has(network: nn.Module, name: str) -> bool:
    try:
        network.get_submodule(name)
    except AttributeError:
        return False
    return True
