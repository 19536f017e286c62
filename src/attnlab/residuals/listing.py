"""The modules, parameters and buffers of a network, with their names: what `nn.Module` lists, in
the same order, each once.

Torch hands everything on through one generator for each level of the network. Surgery on a deep
network of small layers asks some twenty times, which took as long as three forwards (ResNet-164).
"""

from __future__ import annotations

from collections.abc import Container

from torch import Tensor, nn


def list_modules(
    network: nn.Module, without: Container[int] = frozenset()
) -> list[tuple[str, nn.Module]]:
    """`network.named_modules()`, but for modules with these ids and what only they contain."""
    found: dict[int, tuple[str, nn.Module]] = {}
    waiting: list[tuple[str, nn.Module]] = [("", network)]
    while waiting:
        name, module = entry = waiting.pop()
        if id(module) in found or id(module) in without:
            continue
        found[id(module)] = entry
        if module._modules:
            prefix = f"{name}." if name else ""
            waiting += [
                (prefix + child, inner)
                for child, inner in reversed(module._modules.items())
                if inner is not None
            ]
    return list(found.values())


def list_parameters(network: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """`network.named_parameters()`."""
    found: dict[int, tuple[str, nn.Parameter]] = {}
    for prefix, module in list_modules(network):
        for name, parameter in module._parameters.items():
            if parameter is not None and id(parameter) not in found:
                found[id(parameter)] = (f"{prefix}.{name}" if prefix else name, parameter)
    return list(found.values())


def list_buffers(network: nn.Module) -> list[tuple[str, Tensor]]:
    """`network.named_buffers()`."""
    found: dict[int, tuple[str, Tensor]] = {}
    for prefix, module in list_modules(network):
        for name, buffer in module._buffers.items():
            if buffer is not None and id(buffer) not in found:
                found[id(buffer)] = (f"{prefix}.{name}" if prefix else name, buffer)
    return list(found.values())
