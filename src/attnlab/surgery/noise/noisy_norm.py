"""A norm that carries noise: the class of a norm is exchanged for a subclass whose forward runs
under a function mode that knows torch's norm functions.

So norms of other libraries that do more (timm's, which end in an activation; IEBN, whose gate acts
on γ) are disturbed at the same place. The noise survives deepcopy, pickle and torch.compile, and
where it does not act, the norm's own forward runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from attnlab._errors import InputError
from attnlab.surgery.noise.between import Between, affine_under
from attnlab.surgery.noise.kinds import BatchNoise, During, Noise, RandomNoise

_CARRIED = "_attnlab_noise"


@dataclass(frozen=True, eq=False)
class Carried:
    """A noise in a network, the same object in each of its norms."""

    noise: Noise
    during: During

    def acts(self, training: bool) -> bool:
        """Return whether it acts in a norm that is in training mode, or is not."""
        return self.during == "both" or (self.during == "training") == training


def carried_by(norm: nn.Module) -> list[Carried]:
    """The noises of a norm, in the order in which they act."""
    return list(norm.__dict__.get(_CARRIED, ()))


def carry(norm: nn.Module, noises: list[Carried]) -> None:
    """Let `norm` carry these and no others."""
    if noises and not isinstance(norm, _NoisyNorm):
        norm.__class__ = _noisy_class(type(norm))
    if noises:
        norm.__dict__[_CARRIED] = noises
    elif _CARRIED in norm.__dict__:
        del norm.__dict__[_CARRIED]
        # Where another tool has put its class over ours, ours stays there and does nothing.
        norm.__class__ = _own_classes.get(type(norm), type(norm))


def adds_noise(norm: nn.Module) -> bool:
    """Return whether its class is still the one that adds noise: some tools put another in its
    place."""
    return isinstance(norm, _NoisyNorm)


class _NoisyNorm(nn.Module):
    """Mixed in front of a norm's class: its forward runs under the noise that it carries."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (torch's name)
        acting = [each for each in carried_by(self) if each.acts(self.training)]
        if not acting:
            return super().forward(input)
        if isinstance(self, nn.SyncBatchNorm) and _synchronises(self):
            noises = [each.noise for each in acting]
            return _synchronised(self, super().forward, noises, input)
        seen = [0]
        output: Tensor = self._under(acting, seen, input)
        if seen[0] != len(acting):
            raise InputError(
                f"{type(self).__name__} calls torch's norm functions {seen[0] // len(acting)} "
                f"times in one forward, expected once, so noise has no place in it. Take the noise "
                f"out, or use another norm."
            )
        return output

    def _under(self, acting: list[Carried], seen: list[int], input: Tensor) -> Tensor:  # noqa: A002
        """The first noise outermost: it is nearest to what was normalised."""
        if not acting:
            return super().forward(input)
        with Between(acting[0].noise, seen):
            return self._under(acting[1:], seen, input)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if type(self) not in _own_classes:
            return super().__reduce_ex__(protocol)
        return _rebuild, (_own_classes[type(self)],), self.__dict__


_classes: dict[type[nn.Module], type[nn.Module]] = {}
_own_classes: dict[type[nn.Module], type[nn.Module]] = {}
"""The classes that norms had before, by those that they have now."""


def _noisy_class(norm: type[nn.Module]) -> type[nn.Module]:
    if norm not in _classes:
        _classes[norm] = type(
            norm.__name__,
            (_NoisyNorm, norm),
            {"__module__": norm.__module__, "__qualname__": norm.__qualname__},
        )
        _own_classes[_classes[norm]] = norm
    return _classes[norm]


def _rebuild(norm: type[nn.Module]) -> nn.Module:
    noisy_norm = _noisy_class(norm)
    return noisy_norm.__new__(noisy_norm)


def _synchronises(norm: nn.SyncBatchNorm) -> bool:
    """Whether torch takes the statistics over processes, in a function that no mode sees."""
    if not (norm.training and dist.is_available() and dist.is_initialized()):
        return False
    return dist.get_world_size(norm.process_group) > 1


def _synchronised(
    norm: nn.SyncBatchNorm,
    forward: Callable[[Tensor], Tensor],
    noises: list[Noise],
    features: Tensor,
) -> Tensor:
    """Its forward with the affine that the noise makes."""
    stored = {name: norm._parameters[name] for name in ("weight", "bias")}
    weight: Tensor | None = stored["weight"]
    bias: Tensor | None = stored["bias"]
    for noise in reversed(noises):
        if isinstance(noise, BatchNoise) or (
            isinstance(noise, RandomNoise) and noise.per == "image"
        ):
            raise InputError(
                f"SyncBatchNorm takes its statistics over all processes, where {noise.label} has "
                f"no place. Use noise per channel or layer, or leave the norms unsynchronised."
            )
        weight, bias = affine_under(noise, norm.num_features, weight, bias, features)
    parameters: dict[str, Any] = norm._parameters
    parameters.update(weight=weight, bias=bias)
    try:
        return forward(features)
    finally:
        parameters.update(stored)
