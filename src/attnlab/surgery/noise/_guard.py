"""A network's guard: before each run, every norm that was given noise is still there.

Tools that exchange or take away norms (SyncBatchNorm, fusions, IEBN inserted or removed) know
nothing of noise, and a network without it answers as if nothing were wrong. So the network that
noise was attached to looks for its norms.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from attnlab._errors import NoiseLostError
from attnlab.residuals.became import what_became_of
from attnlab.surgery.noise.noisy_norm import adds_noise, carried_by

_HOOK = -1
"""The hook's key: one per network, however often noise is attached. Torch counts its own from 0."""


class Guard:
    """Forward pre-hook that looks for norms."""

    def __init__(self) -> None:
        self.norms: dict[str, nn.Module] = {}
        """By the names that they had when noise was attached."""
        self.ways: list[tuple[nn.Module, str]] = []
        """The modules on the way to norms, each as its parent and its name there ..."""
        self.ends: list[nn.Module] = []
        """... and themselves."""

    def __call__(self, network: nn.Module, args: Any) -> None:
        del args
        if [parent._modules.get(name) for parent, name in self.ways] != self.ends or not all(
            map(adds_noise, self.norms.values())
        ):
            self.look(network)

    def forget(self) -> None:
        """Let norms go that carry nothing any more."""
        self.norms = {name: norm for name, norm in self.norms.items() if carried_by(norm)}

    def look(self, network: nn.Module) -> None:
        """Find the norms wherever they are now."""
        self.forget()
        there = {id(module): name for name, module in network.named_modules()}
        for name, norm in self.norms.items():
            if id(norm) not in there:
                raise _lost_error(network, name, what_became_of(network, name))
            if not adds_noise(norm):
                raise _lost_error(network, name, f"made a plain {type(norm).__name__}")
        self.ways, self.ends = [], []
        for norm in self.norms.values():
            module, name = network, there[id(norm)]
            for part in name.split(".") if name else ():
                self.ways.append((module, part))
                module = module.get_submodule(part)
                self.ends.append(module)


def guard(network: nn.Module, norms: dict[str, nn.Module]) -> None:
    """Let `network` look for `norms`, before each run, from now on."""
    found = network._forward_pre_hooks.get(_HOOK)
    if not isinstance(found, Guard):
        found = network._forward_pre_hooks[_HOOK] = Guard()
    found.norms |= norms
    found.look(network)


def guarded(network: nn.Module) -> list[nn.Module]:
    """All norms that `network` and the networks in it look for, also those that are lost."""
    return [
        norm
        for module in network.modules()
        if isinstance(found := module._forward_pre_hooks.get(_HOOK), Guard)
        for norm in found.norms.values()
    ]


def let_go(network: nn.Module) -> None:
    """Take off guards that have no noise to look for any more."""
    for module in network.modules():
        found = module._forward_pre_hooks.get(_HOOK)
        if isinstance(found, Guard):
            found.forget()
            if not found.norms:
                del module._forward_pre_hooks[_HOOK]


def _lost_error(network: nn.Module, name: str, what_became: str) -> NoiseLostError:
    return NoiseLostError(
        f"The norm {name!r} carried noise, but it was {what_became} afterwards, and "
        f"{type(network).__name__} would answer without that noise. Run that tool first, then "
        f"attach; or take the noise out before it: attnlab.surgery.noise.detach(network)."
    )
