"""Which tokens of a transformer's states are counted: class or patch tokens, and no padding.

A class token is one that the network itself puts beside those of its input, so in the first state
it is the same whatever the input. That is how it is found: by two runs. Registers and distillation
tokens are such tokens too.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from attnlab._errors import InputError, OptionError, unknown_name
from attnlab.instruments.stiffness.choices import TOKENS, Tokens
from attnlab.residuals import Observer, SeenStep, Step, Watchable
from attnlab.residuals.example import Example, as_call, evaluating
from attnlab.residuals.watching import watching

_SAME = 1e-6
"""Relative to the largest value; tokens of the input differ by as much as they are large."""


def check_tokens(tokens: str) -> None:
    """Refuse a choice that is none."""
    if tokens not in TOKENS:
        raise unknown_name("choice of tokens", tokens, TOKENS)


def chosen_tokens(
    model: nn.Module, found: Watchable, example: Example | None, tokens: Tokens
) -> Tensor | None:
    """(tokens,), True where a token is counted; None for all."""
    check_tokens(tokens)
    if tokens == "all":
        return None
    asked = f"tokens={tokens!r}"
    for step in found.steps:
        _check_shape(step, found.steps[0], asked)
    arguments, keywords = as_call(model, example)
    others = tree_map(_other_values, (arguments, keywords))
    first = _FirstState(found.steps[0])
    states = []
    with evaluating(model), watching(model, first, found=found):
        for positional, named in ((arguments, keywords), others):
            model(*positional, **named)
            states.append(first.state)
    one, other = states
    scale = one.abs().max().clamp(min=torch.finfo(one.dtype).tiny)
    own = ((one - other).abs().amax((0, 2)) <= _SAME * scale).cpu()
    if not own.any() and (tokens == "class" or not _has_real_numbers((arguments, keywords))):
        raise OptionError(
            f"{asked}: {type(model).__name__} puts no token of its own beside those of its input: "
            f"every token of its first state changes with the input. Leave tokens out."
        )
    if own.all():
        raise OptionError(
            f"{asked}: no token of the first state of {type(model).__name__} depends on the input, "
            f"so class and patch tokens cannot be told apart. Leave tokens out."
        )
    return own if tokens == "class" else ~own


def of_tokens(features: Tensor, counted: Tensor, what: str) -> Tensor:
    """`features`, (inputs, tokens, channels) or (inputs, tokens, streams, channels), with zeros in
    the tokens that are not counted."""
    if features.ndim not in (3, 4) or features.shape[:2] != counted.shape:
        raise InputError(
            f"Expected {what} to have the shape (inputs, tokens, channels) with {len(counted)} "
            f"inputs and {counted.shape[1]} tokens, of which some are not counted, but got shape "
            f"{tuple(features.shape)}."
        )
    left_out = ~counted.to(features.device)
    return features.masked_fill(left_out[(...,) + (None,) * (features.ndim - 2)], 0.0)


def check_same_tokens(valid: Tensor, chosen: Tensor) -> None:
    """Refuse an `attention_mask` of other tokens than those of the example."""
    if valid.shape != chosen.shape:
        raise InputError(
            f"Expected attention_mask of shape {tuple(chosen.shape)}, as the example had tokens, "
            f"but got shape {tuple(valid.shape)}."
        )


def _check_shape(step: Step, first: Step, asked: str) -> None:
    if len(step.shape) != 3 or step.channel_axis != 2:
        raise OptionError(
            f"{asked} is for states of shape (inputs, tokens, channels), as of a vision "
            f"transformer, but step {step.label} ({step.name}) has states of shape {step.shape}. "
            f"Leave tokens out."
        )
    if step.shape[1] != first.shape[1]:
        raise OptionError(
            f"{asked}: the states have {first.shape[1]} tokens in step {first.label} and "
            f"{step.shape[1]} in step {step.label} ({step.name}), so which is which cannot be "
            f"told. Leave tokens out."
        )


class _FirstState(Observer):
    """Keeps a copy of the state that the first step reads."""

    def __init__(self, step: Step) -> None:
        self.key = step.key
        self.state = torch.empty(0)

    def step_seen(self, seen: SeenStep) -> None:
        if seen.step.key == self.key:
            self.state = seen.shortcut.detach().clone()


def _other_values(leaf: object) -> object:
    """Another input: noise in place of real numbers, the number next to each of a token."""
    if not isinstance(leaf, Tensor):
        return leaf
    if leaf.is_floating_point():
        noise = torch.randn(leaf.shape, generator=torch.Generator().manual_seed(1))
        return noise.to(leaf)
    if leaf.dtype == torch.bool or int(leaf.max()) <= 1:
        return leaf  # a mask, kinds of tokens
    return torch.where(leaf > 0, leaf - 1, leaf + 1)


def _has_real_numbers(tree: object) -> bool:
    found: list[bool] = []
    tree_map(lambda v: found.append(isinstance(v, Tensor) and v.is_floating_point()), tree)
    return any(found)
