"""Surgery is checked in float64: in float32 a deep network can show a relative error of 1 where the
surgery is right to 1e-8."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from attnlab.residuals.attachment import Attachment
from attnlab.residuals.copying import deep_copy, double_deep_copy
from attnlab.residuals.example import Example, call, evaluating, example_input
from attnlab.residuals.listing import list_modules

MOST_PARAMETERS = 500_000_000
"""Larger networks are not copied to float64: the copy alone would take 4 GB."""

EXACT = 1e-8
"""The largest relative error in float64, at any site or at the output, that passes for exact."""


def copied(network: nn.Module, without: Collection[nn.Module] = ()) -> nn.Module:
    """A copy of `network`, which shares only what says where its gates are: that never changes, and
    copying it takes as long as copying the network. Gates `without` which it will be are not
    copied: `Absent` stands for them."""
    return _copied(network, without, deep_copy)


def double_copy(network: nn.Module, without: Collection[nn.Module] = ()) -> nn.Module:
    """The same in float64, made without a copy in its own precision."""
    return _copied(network, without, double_deep_copy)


class Absent(nn.Module):
    """Stands in a copy of a network for the gates that will be taken off it, and until then are
    held at what they return: 43 % of the modules of a ResNet-164 with ASR are in its gates."""

    def forward(self, branch: Tensor) -> Tensor:
        return branch.new_ones((1,) * branch.dim())


def _copied(
    network: nn.Module,
    without: Collection[nn.Module],
    copy: Callable[[nn.Module, dict[int, object]], nn.Module],
) -> nn.Module:
    sites: dict[int, object] = {
        id(m.site): m.site for _, m in list_modules(network) if isinstance(m, Attachment)
    }
    if not without:
        return copy(network, sites)
    absent = Absent()
    before = sys.getrefcount(absent)
    made = copy(network, sites | dict.fromkeys(map(id, without), absent))
    # Each gate is registered once. Whatever else has one, a module or a list of the user's, shall
    # have a copy of it.
    alone = sys.getrefcount(absent) == before + len(without)
    return made if alone else copy(network, sites)


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
