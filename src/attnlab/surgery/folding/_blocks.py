"""Blocks that know how to merge themselves: each is asked to, and believed only if it answers as
before.

A block's own method may be wrong without a word: it may drop a norm that it did not merge, or
change its layers and not its forward.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from attnlab.residuals.example import Example, call, evaluating
from attnlab.surgery.change import largest_change, relative_to
from attnlab.surgery.double import exchange
from attnlab.surgery.folding._ids import Refusal

METHODS = ("fuse", "reparameterize", "switch_to_deploy", "fuse_convs")
"""What timm looks for, and Ultralytics' name for it."""
_MOST_EPSILONS = 1e6
"""A block's own method passes if the largest change is at most this many roundings: 2e-10 in
float64, where right methods are at 1e-14. In float32 it is 0.1, which tells a wrong forward and no
more."""

Calls = list[tuple[tuple[Any, ...], dict[str, Any], Any]]
"""Arguments, keywords and output of each call of a block."""


def merge_blocks(network: nn.Module, example: Example | None) -> tuple[list[str], dict[str, str]]:
    """Let blocks merge themselves, from the outside in; the names of those that did, and why others
    were left as they are."""
    names = {m: name for name, m in network.named_modules() if name and _method(m)}
    if not names:
        return [], {}
    seen = _calls(network, example, {name: m for m, name in names.items()})
    merged: list[str] = []
    left: dict[str, str] = {}

    def visit(module: nn.Module) -> None:
        for child in list(module.children()):
            name = names.pop(child, None)
            if name is None:
                visit(child)
                continue
            try:
                new = _by_its_own_method(child, seen[name])
            except Refusal as reason:
                left[name] = str(reason)
                visit(child)
                continue
            if new is not None:
                exchange(network, child, new)
                merged.append(name)
            visit(child if new is None else new)

    visit(network)
    return merged, left


def _method(module: nn.Module) -> str | None:
    """The name of the method by which `module` merges itself, if it needs no argument."""
    for name in METHODS:
        found = getattr(module, name, None)
        if not callable(found) or isinstance(found, nn.Module):
            continue
        if not any(_needed(each) for each in inspect.signature(found).parameters.values()):
            return name
    return None


def _needed(each: inspect.Parameter) -> bool:
    free = (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    return each.default is each.empty and each.kind not in free


def _calls(
    network: nn.Module, example: Example | None, blocks: Mapping[str, nn.Module]
) -> dict[str, Calls]:
    """What each block was given and returned in one run."""
    seen: dict[str, Calls] = {name: [] for name in blocks}

    def before(name: str) -> Callable[..., None]:
        def hook(_module: nn.Module, args: object, kwargs: object) -> None:
            given = tree_map(_kept, (args, kwargs))  # copied: a block may write into its input
            seen[name].append((*given, None))

        return hook

    def after(name: str) -> Callable[..., None]:
        def hook(_module: nn.Module, _args: object, output: object) -> None:
            args, kwargs, _ = seen[name][-1]
            seen[name][-1] = (args, kwargs, tree_map(_kept, output))

        return hook

    with ExitStack() as hooks, evaluating(network):
        for name, block in blocks.items():
            hooks.enter_context(block.register_forward_pre_hook(before(name), with_kwargs=True))
            hooks.enter_context(block.register_forward_hook(after(name)))
        call(network, example)
    return seen


def _kept(leaf: object) -> object:
    return leaf.detach().clone() if isinstance(leaf, Tensor) else leaf


def _by_its_own_method(block: nn.Module, calls: Calls) -> nn.Module | None:
    """The block after its own method, checked; None if there was nothing to merge."""
    method = _method(block)
    assert method is not None
    if not calls:
        raise Refusal("it is not called in eval mode")
    new = copy.deepcopy(block)
    try:
        returned = getattr(new, method)()
        new = returned if isinstance(returned, nn.Module) else new
        if _keys(new) == _keys(block) and type(new) is type(block):
            return None
        new.eval()
        changes = [_change(new, *each) for each in calls]
    except Exception as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise Refusal(f"its own {method}() fails: {first}") from error
    change = max(changes)
    dtype = next(t.dtype for t in _numbers((block.state_dict(), calls[0])))
    if not change <= _MOST_EPSILONS * torch.finfo(dtype).eps:
        raise Refusal(f"its own {method}() changes its output by {change:.1e}, relative")
    return new


def _keys(module: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in module.state_dict().items()}


def _change(block: nn.Module, args: Any, kwargs: Any, expected: Any) -> float:
    args, kwargs = tree_map(_kept, (args, kwargs))
    found = list(_numbers(block(*args, **kwargs)))
    wanted = list(_numbers(expected))
    if [each.shape for each in found] != [each.shape for each in wanted]:
        return float("inf")
    largest, size, _ = largest_change(list(zip(wanted, found, strict=True)))
    return float("inf") if largest is None else relative_to(largest, size)


def _numbers(tree: object) -> Iterator[Tensor]:
    for leaf in tree_leaves(tree):
        if isinstance(leaf, Tensor) and leaf.is_floating_point():
            yield leaf
