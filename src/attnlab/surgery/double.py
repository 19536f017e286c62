"""Surgery is checked in float64: in float32 a deep network can show a relative error of 1 where the
surgery is right to 1e-8."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from attnlab.residuals.attachment import Attachment
from attnlab.residuals.copying import deep_copy
from attnlab.residuals.example import Example, call, evaluating, example_input
from attnlab.residuals.listing import list_buffers, list_modules, list_parameters

MOST_PARAMETERS = 500_000_000
"""Larger networks are not copied to float64: the copy alone would take 4 GB."""

EXACT = 1e-8
"""The largest relative error in float64, at any site or at the output, that passes for exact."""


def copied(network: nn.Module) -> nn.Module:
    """A copy of `network`, which shares only what says where its gates are: that never changes, and
    copying it takes as long as copying the network."""
    return deep_copy(network, _sites(network))


def double_copy(network: nn.Module) -> nn.Module:
    """A copy of `network` in float64, made without one in its own precision."""
    memo = _sites(network)
    for _, tensor in (*list_parameters(network), *list_buffers(network)):
        if not tensor.is_floating_point():
            continue
        value = tensor.detach().to(torch.float64, copy=True)  # it may be float64 already
        if type(tensor) is nn.Parameter:
            memo[id(tensor)] = nn.Parameter(value, tensor.requires_grad)
        elif type(tensor) is Tensor:
            memo[id(tensor)] = value
    exact = deep_copy(network, memo)
    tensors = (*list_parameters(exact), *list_buffers(exact))
    casts = any(t.is_floating_point() and t.dtype != torch.float64 for _, t in tensors)
    return exact.double() if casts else exact


def _sites(network: nn.Module) -> dict[int, object]:
    """What a copy of `network` may share, by identity."""
    return {id(m.site): m.site for _, m in list_modules(network) if isinstance(m, Attachment)}


def double_example(network: nn.Module, example: Example | None) -> Example:
    """The example, or the one made for `network`, in float64."""
    if example is None:
        example = example_input(network)
    doubled: Example = tree_map(_double, example)
    return doubled


def _double(leaf: object) -> object:
    return leaf.double() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf


def coarsest_type(network: nn.Module, example: Example | None) -> torch.dtype:
    """The coarsest floating type that a run of `network` passes: it may cast inside."""
    with evaluating(network), _FloatTypes() as passed:
        call(network, example)
    return max(passed.seen, key=lambda dtype: torch.finfo(dtype).eps, default=torch.float64)


def resolved_by(coarsest: torch.dtype) -> float:
    """The largest relative error that rounding explains in such a run."""
    return EXACT if coarsest == torch.float64 else 100 * torch.finfo(coarsest).eps


class _FloatTypes(TorchFunctionMode):
    """Notes the floating types of all tensors that are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[torch.dtype] = set()

    def __torch_function__(
        self,
        function: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        del types
        output = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(output):
            if isinstance(leaf, Tensor) and leaf.is_floating_point():
                self.seen.add(leaf.dtype)
        return output


def exchange(network: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Put `new` wherever `old` is registered: a module may be shared."""
    for module in list(network.modules()):
        for name, child in list(module._modules.items()):
            if child is old:
                setattr(module, name, new)
