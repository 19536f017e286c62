"""Means of attention maps over inputs, which may have different numbers of tokens."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad


class MeanMap:
    """The mean map of each head of one attention: at each query and key over the inputs that have
    both."""

    def __init__(self) -> None:
        self.sum = torch.zeros(0, 0, 0, dtype=torch.float64)
        self.count = torch.zeros(0, 0, dtype=torch.float64)

    def see(self, weights: Tensor, valid: Tensor | None) -> None:
        """Add a batch (inputs, heads, queries, keys); `valid` (inputs, tokens) without padding."""
        weights = weights.detach().double().cpu()
        inputs, heads, queries, keys = weights.shape
        there = torch.ones(inputs, queries, keys, dtype=torch.float64)
        if valid is not None:
            tokens = valid.double().cpu()
            there = tokens[:, :, None] * tokens[:, None, :]
        # Rows of padding may be NaN.
        weights = weights.nan_to_num(0.0) * there[:, None]
        if not self.sum.numel():
            self.sum = torch.zeros(heads, 0, 0, dtype=torch.float64)
        self._grow(queries, keys)
        self.sum[:, :queries, :keys] += weights.sum(0)
        self.count[:queries, :keys] += there.sum(0)

    def _grow(self, queries: int, keys: int) -> None:
        more = (0, max(0, keys - self.sum.shape[2]), 0, max(0, queries - self.sum.shape[1]))
        self.sum, self.count = pad(self.sum, more), pad(self.count, more)

    def without_padding(self) -> MeanMap:
        """Without the tokens at the end that no input has."""
        kept = MeanMap()
        queries, keys = ((self.count.sum(axis) > 0).nonzero()[-1] + 1 for axis in (1, 0))
        kept.sum, kept.count = self.sum[:, :queries, :keys], self.count[:queries, :keys]
        return kept

    @property
    def mean(self) -> Tensor:
        """(heads, queries, keys); 0 where no input has both tokens."""
        return self.sum / self.count.clamp(min=1)

    def for_inputs(self, weights: Tensor, valid: Tensor | None) -> Tensor:
        """The mean in the place of `weights`: over the keys that each input has, each row adds up
        to 1. Where a row has no mean, the input's own."""
        queries, keys = weights.shape[2:]
        mean = self.mean[None, :, :queries, :keys].to(weights)
        more = (0, keys - mean.shape[3], 0, queries - mean.shape[2])
        mean = pad(mean, more)
        if valid is not None:
            mean = mean * valid[:, None, None, :].to(weights)
        total = mean.sum(3, keepdim=True)
        known = total > 0
        return torch.where(known, mean / torch.where(known, total, 1.0), weights)


def distance(one: Tensor, other: Tensor, valid: Tensor | None) -> Tensor:
    """Half the sum over keys of |one − other|, mean over queries: (inputs, heads). 0 is the same
    map, 1 is no key in common."""
    rows = (one.double() - other.double()).abs().nan_to_num(0.0)
    if valid is None:
        return rows.sum(3).mean(2) / 2
    queries = valid.double()[:, None, :]
    rows = rows * valid.double()[:, None, None, :]
    return (rows.sum(3) * queries).sum(2) / queries.sum(2).clamp(min=1) / 2
