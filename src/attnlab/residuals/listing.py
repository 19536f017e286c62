"""The modules, parameters and buffers of a network, with their names: what `nn.Module` lists, in
the same order, each once.

Torch hands everything on through one generator for each level of the network. Surgery on a deep
network of small layers asks some twenty times, which took as long as three forwards (ResNet-164).
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from torch import Tensor, nn


def list_modules(
    network: nn.Module, without: Container[int] = frozenset()
) -> list[tuple[str, nn.Module]]:
    """`network.named_modules()`, but for modules with these ids and what only they contain."""
    found: dict[int, tuple[str, nn.Module]] = {}
    waiting: list[tuple[str, nn.Module]] = [("", network)]
    while waiting:
        name, module = entry = waiting.pop()
        number = id(module)
        if number in found or number in without:
            continue
        found[number] = entry
        children = module._modules
        if children:
            prefix = f"{name}." if name else ""
            waiting += [
                (prefix + child, inner)
                for child, inner in reversed(children.items())
                if inner is not None
            ]
    return list(found.values())


def list_parameters(network: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """`network.named_parameters()`."""
    return registered(list_modules(network), "_parameters")


def list_buffers(network: nn.Module) -> list[tuple[str, Tensor]]:
    """`network.named_buffers()`."""
    return registered(list_modules(network), "_buffers")


def named_tensors(network: nn.Module) -> dict[str, Tensor]:
    """Parameters, then buffers, by their names; shared ones under their first."""
    modules = list_modules(network)
    return dict(registered(modules, "_parameters") + registered(modules, "_buffers"))


def registered(modules: list[tuple[str, nn.Module]], kind: str) -> list[tuple[str, Any]]:
    """What these modules have of this kind, `_parameters` or `_buffers`, shared ones once."""
    found: dict[int, tuple[str, Any]] = {}
    for prefix, module in modules:
        for name, tensor in module.__dict__[kind].items():
            if tensor is not None and id(tensor) not in found:
                found[id(tensor)] = (f"{prefix}.{name}" if prefix else name, tensor)
    return list(found.values())
