"""BatchNorm's statistics, moved by as much as constant gates move what the norms see.

A norm was given its statistics in training. Where a gate before it becomes constant, its input has
another mean and variance. On the same images both are known, before and after; the difference of
the means and the ratio of the variances are carried over to the stored statistics. So they stay as
they are where nothing changed, however few the images are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from attnlab.residuals.example import call, evaluating
from attnlab.surgery.folding._halves import Part

Statistics = dict[str, tuple[Tensor, Tensor]]
"""Means and variances (each with its norm's epsilon), by the names of norms, in float64."""


@dataclass(frozen=True)
class Norms:
    """What the norms of a network see of some images, before anything is changed."""

    parts: tuple[Part, ...]
    seen: tuple[Statistics, ...]
    """For each part."""

    @classmethod
    def of(cls, model: nn.Module, parts: Sequence[Part]) -> Norms:
        """Return what those of `model` see now."""
        found = []
        for part in parts:
            seen: dict[str, list[tuple[Tensor, Tensor]]] = {}
            with ExitStack() as hooks, evaluating(model):
                for name, norm in _norms(model):
                    hooks.enter_context(norm.register_forward_pre_hook(_noting(seen, name)))
                call(model, part.inputs)
            # A norm that runs several times has one set of statistics for several inputs.
            found.append({name: calls[0] for name, calls in seen.items() if len(calls) == 1})
        return cls(tuple(parts), tuple(found))

    def moved(self, model: nn.Module) -> Statistics:
        """The statistics that the norms of `model`, which was changed, should have. Each norm is
        given its own while the images pass, so that later ones see what earlier ones make now."""
        norms = dict(_norms(model))
        images = sum(part.images for part in self.parts)
        moved = {name: _Moved(_stored(norm)) for name, norm in norms.items()}
        for part, before in zip(self.parts, self.seen, strict=True):
            with ExitStack() as hooks, evaluating(model), _restored(norms):
                for name in before.keys() & norms.keys():
                    hook = moved[name].hook(before[name], part.images / images)
                    hooks.enter_context(norms[name].register_forward_pre_hook(hook))
                call(model, part.inputs)
        return {name: each.statistics() for name, each in moved.items()}


class _Moved:
    """One norm: how far its statistics move, as a mean over parts."""

    def __init__(self, stored: tuple[Tensor, Tensor]) -> None:
        self.mean, self.variance = stored
        self.shift = torch.zeros_like(self.mean)
        self.ratio = torch.zeros_like(self.mean)
        """Its logarithm."""

    def hook(self, before: tuple[Tensor, Tensor], share: float) -> Any:
        """Before the norm runs on a part: take in what it sees, and give it what fits that."""

        def move(norm: _BatchNorm, arguments: tuple[Tensor, ...]) -> None:
            mean, variance = _moments(norm, arguments[0])
            shift, ratio = mean - before[0], (variance / before[1]).log()
            self.shift += share * shift
            self.ratio += share * ratio
            _store(norm, self.mean + shift, self.variance * ratio.exp())

        return move

    def statistics(self) -> tuple[Tensor, Tensor]:
        return self.mean + self.shift, self.variance * self.ratio.exp()


def set_statistics(model: nn.Module, statistics: Statistics) -> None:
    """Give the norms of `model` these."""
    for name, norm in _norms(model):
        _store(norm, *statistics[name])


@contextmanager
def with_statistics(model: nn.Module, statistics: Statistics) -> Iterator[None]:
    """`model` with these, for a while."""
    with _restored(dict(_norms(model))):
        set_statistics(model, statistics)
        yield


@contextmanager
def _restored(norms: dict[str, _BatchNorm]) -> Iterator[None]:
    buffers = [b for norm in norms.values() for b in (norm.running_mean, norm.running_var)]
    kept = [(buffer, buffer.clone()) for buffer in buffers if buffer is not None]
    try:
        yield
    finally:
        for buffer, before in kept:
            buffer.copy_(before)


def _norms(model: nn.Module) -> Iterator[tuple[str, _BatchNorm]]:
    """Yield the norms that normalise by stored statistics."""
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and module.running_mean is not None:
            yield name, module


def _noting(seen: dict[str, list[tuple[Tensor, Tensor]]], name: str) -> Any:
    def hook(norm: _BatchNorm, arguments: tuple[Tensor, ...]) -> None:
        seen.setdefault(name, []).append(_moments(norm, arguments[0]))

    return hook


def _moments(norm: _BatchNorm, images: Tensor) -> tuple[Tensor, Tensor]:
    """The mean, and what the norm divides by the root of: the variance with its epsilon."""
    values = images.detach().double().movedim(1, 0).flatten(1)
    variance, mean = torch.var_mean(values, 1, correction=0)
    return mean.cpu(), variance.cpu() + norm.eps


def _stored(norm: _BatchNorm) -> tuple[Tensor, Tensor]:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    return norm.running_mean.double().cpu(), norm.running_var.double().cpu() + norm.eps


def _store(norm: _BatchNorm, mean: Tensor, variance: Tensor) -> None:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    norm.running_mean.copy_(mean)
    norm.running_var.copy_((variance - norm.eps).clamp_min(0))
