"""Exchange a module of a network for another."""

from __future__ import annotations

from torch import nn


def exchange(network: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Put `new` wherever `old` is registered: a module may be shared."""
    for module in list(network.modules()):
        for name, child in list(module._modules.items()):
            if child is old:
                setattr(module, name, new)
