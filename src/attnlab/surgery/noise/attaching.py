"""Put noise into the norms of a network and take it out again: every key and value is kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.lazy import LazyModuleMixin

from attnlab._errors import InputError, NoiseLostError, OptionError
from attnlab.gates import Gate
from attnlab.residuals.classes import what_became_of
from attnlab.surgery.noise.kinds import BatchNoise, During, Noise, check_during
from attnlab.surgery.noise.noisy_norm import Carried, adds_noise, carried_by, carry

_HOOK = -1
"""The hook's key: one per network, however often noise is attached. Torch counts its own from 0."""


class NoiseGuard:
    """Forward pre-hook that looks for norms."""

    def __init__(self) -> None:
        self.norms: dict[str, nn.Module] = {}
        """By the names that they had when noise was attached."""
        self.ways: list[tuple[nn.Module, str]] = []
        """The modules on the way to norms, each as its parent and its name there ..."""
        self.ends: list[nn.Module] = []
        """... and themselves."""

    def __call__(self, network: nn.Module, args: object) -> None:
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
    if not isinstance(found, NoiseGuard):
        found = network._forward_pre_hooks[_HOOK] = NoiseGuard()
    found.norms |= norms
    found.look(network)


def guarded(network: nn.Module) -> list[nn.Module]:
    """Return all norms that `network` and the networks in it look for, also those that are lost."""
    return [
        norm
        for module in network.modules()
        if isinstance(found := module._forward_pre_hooks.get(_HOOK), NoiseGuard)
        for norm in found.norms.values()
    ]


def let_go(network: nn.Module) -> None:
    """Take off guards that have no noise to look for any more."""
    for module in network.modules():
        found = module._forward_pre_hooks.get(_HOOK)
        if isinstance(found, NoiseGuard):
            found.forget()
            if not found.norms:
                del module._forward_pre_hooks[_HOOK]


def _lost_error(network: nn.Module, name: str, what_became: str) -> NoiseLostError:
    return NoiseLostError(
        f"The norm {name!r} carried noise, but it was {what_became} afterwards, and "
        f"{type(network).__name__} would answer without that noise. Run that tool first, then "
        f"attach; or take the noise out before it: attnlab.surgery.noise.detach(network)."
    )


_NORMS = (_BatchNorm, nn.LayerNorm, nn.GroupNorm)


@dataclass(frozen=True)
class NoiseReceipt:
    """What `attach` did."""

    noise: Noise
    during: During
    norms: tuple[str, ...]
    """The norms that carry the noise now."""
    others: tuple[str, ...]
    """Norms that it does not reach."""

    def __str__(self) -> str:
        when = {"both": "in training and in test"}.get(self.during, f"in {self.during}")
        lines = [
            f"{self.noise.label}, {when}",
            f"  norms       {len(self.norms)}: {_shortened(self.norms)}",
        ]
        if self.others:
            lines.append(f"  not reached {len(self.others)}: {_shortened(self.others)}")
        return "\n".join(lines)


def attach(network: nn.Module, noise: Noise, during: During | None = None) -> NoiseReceipt:
    """Put `noise` into the norms of `network` itself: BatchNorm of every rank, synchronised and
    IEBN included, LayerNorm and GroupNorm, and what other libraries made of them.

    Norms inside gates are left alone, so that the disturbance is the same with every gate.

    Args:
        network: changed in place; its state-dict keys and values are kept. Convert to SyncBatchNorm
            and insert or remove gates first: all of these may exchange norms, and a new norm has
            no noise. The network looks for its norms before each run, and raises
            `NoiseLostError` where one is gone. `carried` says which have noise.
        noise: of `constant`, `random` or `batch`. After noise that is there already, it acts on
            what that made.
        during: "training" and "test" go by the mode of each norm. Default: constant noise always,
            the others in training.
    """
    return _attach(network, noise, during)[1]


def detach(network: nn.Module) -> None:
    """Take all noise out of `network`."""
    for norm in [*network.modules(), *guarded(network)]:
        carry(norm, [])
    let_go(network)


@contextmanager
def noisy(network: nn.Module, noise: Noise, during: During | None = None) -> Iterator[NoiseReceipt]:
    """`attach` inside, and as before afterwards."""
    attached, receipt = _attach(network, noise, during)
    try:
        yield receipt
    finally:
        for norm in [*network.modules(), *guarded(network)]:
            carry(norm, [each for each in carried_by(norm) if each is not attached])
        let_go(network)


def carried(network: nn.Module) -> dict[str, tuple[tuple[Noise, During], ...]]:
    """The noise in each norm that has any, by the norm's name, in the order in which it acts."""
    return {
        name: tuple((each.noise, each.during) for each in found)
        for name, norm in network.named_modules()
        if (found := carried_by(norm))
    }


def _attach(
    network: nn.Module, noise: Noise, during: During | None
) -> tuple[Carried, NoiseReceipt]:
    if not isinstance(noise, Noise):
        raise OptionError(
            f"Expected a noise, such as attnlab.surgery.noise.random(0.3), but got {noise!r}."
        )
    during = noise.default_during if during is None else during
    check_during(during)
    norms, others = _found(network)
    if isinstance(noise, BatchNoise):
        others += [name for name, norm in norms.items() if not isinstance(norm, _BatchNorm)]
        norms = {name: norm for name, norm in norms.items() if isinstance(norm, _BatchNorm)}
    _check(network, noise, norms, others)
    attached = Carried(noise, during)
    for norm in norms.values():
        carry(norm, [*carried_by(norm), attached])
    guard(network, norms)
    return attached, NoiseReceipt(noise, during, tuple(norms), tuple(others))


def _found(network: nn.Module) -> tuple[dict[str, nn.Module], list[str]]:
    """Norms that can carry noise, and other modules that are norms by their name."""
    norms: dict[str, nn.Module] = {}
    others: list[str] = []
    skipped: str | None = None  # what lies in a module comes right after it
    for name, module in network.named_modules():
        if skipped is not None and name.startswith(skipped):
            continue
        inside = f"{name}." if name else ""
        if isinstance(module, Gate):
            skipped = inside
        elif isinstance(module, _NORMS):
            norms[name] = module
            skipped = inside  # a norm's own parts are its business: IEBN has a gate
        elif "norm" in type(module).__name__.lower() and not _has_layers(module):
            others.append(f"{name} ({type(module).__name__})")
    return norms, others


def _has_layers(module: nn.Module) -> bool:
    return any(True for child in module.children() for _ in child.parameters())


def _check(
    network: nn.Module, noise: Noise, norms: dict[str, nn.Module], others: list[str]
) -> None:
    kind = type(network).__name__
    of_batch = isinstance(noise, BatchNoise)
    wanted = "BatchNorm" if of_batch else "BatchNorm, LayerNorm or GroupNorm"
    if not norms:
        has = f" It has {_shortened(tuple(others))}." if others else ""
        raise InputError(
            f"{kind} has no {wanted}, so there is no place for noise ({noise.label}).{has} Choose "
            f"a network with norms"
            f"{', or random or constant noise' if of_batch and others else ''}."
        )
    if any(isinstance(module, torch.jit.ScriptModule) for module in network.modules()):
        raise InputError(f"{kind} is scripted, so it cannot be changed. Attach before scripting.")
    lazy = [name for name, norm in norms.items() if isinstance(norm, LazyModuleMixin)]
    if lazy:
        raise InputError(
            f"{lazy[0]!r} does not know its size yet ({type(norms[lazy[0]]).__name__}). Run the "
            f"network once, then attach noise."
        )


def _shortened(names: tuple[str, ...], most: int = 4) -> str:
    if len(names) <= most:
        return ", ".join(names)
    return ", ".join((*names[: most - 1], f"… {names[-1]}"))
