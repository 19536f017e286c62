"""See the attention maps of a network while it runs, and put others in their place.

A map is what a softmax over keys gives and a product with the values takes: that is how it is
found, whatever the class of the module. Attention in one fused operation is computed step by step
instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.overrides import TorchFunctionMode

from attnlab._errors import InputError
from attnlab.residuals import operations
from attnlab.residuals.example import running_eagerly


class MapKey(NamedTuple):
    """Which attention of a network: the module that computes it, and which of its maps in a
    forward, from 0."""

    module: str
    number: int

    def __str__(self) -> str:
        return f"{self.module} ({self.number + 1})" if self.number else self.module


Handler = Callable[[MapKey, Tensor], Tensor]
"""Given a map (inputs, heads, queries, keys), answers with the one to use."""


@contextmanager
def handling_maps(model: nn.Module, handler: Handler) -> Iterator[None]:
    """Have every attention map of `model` go through `handler` inside the `with` block."""
    stack: list[str] = []

    def enter(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, arguments: object) -> None:
            del module, arguments
            stack.append(name)

        return hook

    def leave(module: nn.Module, arguments: object, output: object) -> None:
        del module, arguments, output
        stack.pop()

    handles = []
    for name, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(enter(name), prepend=True))
        handles.append(module.register_forward_hook(leave, always_call=True))
    try:
        with running_eagerly(), _Maps(handler, stack):
            yield
    finally:
        for handle in handles:
            handle.remove()


class _Maps(TorchFunctionMode):
    """Recognises maps among the torch calls of a run."""

    def __init__(self, handler: Handler, stack: list[str]) -> None:
        super().__init__()
        self.handler = handler
        self.stack = stack
        self.counts: Counter[str] = Counter()
        self.candidates: dict[int, Tensor] = {}
        """What a softmax over keys gave, by id; kept, because ids are unique among the living."""

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        del types
        kwargs = kwargs or {}
        name = operations.canonical(getattr(function, "__name__", ""))
        if name == "scaled_dot_product_attention":
            return self._fused(*args, **kwargs)
        if name == "softmax":
            output = function(*args, **kwargs)
            if output.ndim == 4 and _axis(args, kwargs) in (-1, 3):
                self.candidates[id(output)] = output
            return output
        kind = operations.kind_of(name)
        if kind == "matmul" and any(id(a) in self.candidates for a in args):
            args = tuple(self._told(a) if id(a) in self.candidates else a for a in args)
            return function(*args, **kwargs)
        output = function(*args, **kwargs)
        known = kind == "layout" and bool(args) and id(args[0]) in self.candidates
        if known and isinstance(output, Tensor) and output.shape == args[0].shape:
            self.candidates[id(output)] = output  # dropout, another precision
        return output

    def _told(self, weights: Tensor) -> Tensor:
        del self.candidates[id(weights)]
        module = self.stack[-1] if self.stack else ""
        key = MapKey(module, self.counts[module])
        self.counts[module] += 1
        return self.handler(key, weights)

    def _fused(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        if dropout_p:
            raise InputError("Expected attention without dropout, in eval mode.")
        if enable_gqa:
            repeats = query.shape[-3] // key.shape[-3]
            key, value = (t.repeat_interleave(repeats, -3) for t in (key, value))
        factor = query.shape[-1] ** -0.5 if scale is None else scale
        scores = (query * factor) @ key.transpose(-2, -1)
        if is_causal:
            ones = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
            scores = scores.masked_fill(~ones.tril(), -torch.inf)
        if attn_mask is not None:
            if attn_mask.dtype == torch.bool:
                scores = scores.masked_fill(~attn_mask, -torch.inf)
            else:
                scores = scores + attn_mask
        weights = scores.softmax(-1)
        if weights.ndim != 4:
            return weights @ value
        self.candidates[id(weights)] = weights
        return self._told(weights) @ value


def _axis(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    if "dim" in kwargs:
        return kwargs["dim"]
    return args[1] if len(args) > 1 else None


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
        """Return the maps without the tokens at the end that no input has."""
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
    map, 1 is not one key in common."""
    rows = (one.double() - other.double()).abs().nan_to_num(0.0)
    if valid is None:
        return rows.sum(3).mean(2) / 2
    queries = valid.double()[:, None, :]
    rows = rows * valid.double()[:, None, None, :]
    return (rows.sum(3) * queries).sum(2) / queries.sum(2).clamp(min=1) / 2
