"""Aggregation with maps that are a 1×1 convolution of features, as involution's are.

The maps, K² numbers per group and pixel, are several times as large as the features that they are
made of and that they act on. `torch.ops.attnlab.spanned_av` does not keep them for the backward
pass but makes them again; on the native kernels there are a few rows of them at a time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op

from attnlab.evolution import _ops
from attnlab.evolution._plain import EAGER
from attnlab.evolution._span import maps_of


@custom_op("attnlab::spanned_av", mutates_args=())
def spanned_av(
    features: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    groups: int,
    window: list[int],
) -> Tensor:
    return EAGER.spanned_av(features, x, weight, bias, groups, window)


@custom_op("attnlab::spanned_av_backward", mutates_args=())
def spanned_av_backward(
    grad: Tensor,
    features: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    groups: int,
    window: list[int],
) -> list[Tensor]:
    return EAGER.spanned_av_backward(grad, features, x, weight, bias, groups, window)


@spanned_av.register_fake
def _(features: Tensor, x: Tensor, *_: Any) -> Tensor:
    return x.new_empty(*x.shape[:2], *features.shape[2:])


@spanned_av_backward.register_fake
def _(
    _grad: Tensor, features: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, *_: Any
) -> list[Tensor]:
    given = [features, x, weight, *([] if bias is None else [bias])]
    return [t.new_empty(t.shape) for t in given]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    features, x, weight, bias, ctx.groups, ctx.window = inputs
    ctx.has_bias = bias is not None
    ctx.save_for_backward(features, x, weight, *([bias] if ctx.has_bias else []))


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    tensors = list(ctx.saved_tensors)
    found: list[Any]
    if torch.is_grad_enabled():
        found = _differentiable(grad, tensors, ctx)
    else:
        bias = tensors[3] if ctx.has_bias else None
        found = spanned_av_backward(grad, *tensors[:3], bias, ctx.groups, ctx.window)
    return *found, *(None,) * (6 - len(found))


def _differentiable(grad: Tensor, tensors: list[Tensor], ctx: Any) -> list[Tensor | None]:
    """The same gradients through `torch.autograd.grad` of maps and `av`."""
    aliases = [t.view_as(t) for t in tensors]
    features, x, weight = aliases[:3]
    maps = maps_of(features, weight, aliases[3] if ctx.has_bias else None, ctx.groups)
    out = _ops.av(maps, x, ctx.window)
    wanted = [t for t in aliases if t.requires_grad]
    found = iter(torch.autograd.grad(out, wanted, grad, create_graph=True))
    return [next(found) if t.requires_grad else None for t in aliases]


spanned_av.register_autograd(_gradients, setup_context=_keep)
