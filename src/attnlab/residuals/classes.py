"""The classes of modules before gates came: a module that hosts a gate gets another one."""

from __future__ import annotations

from torch import nn

OWN_CLASSES: dict[type[nn.Module], type[nn.Module]] = {}
"""The classes that modules had before gates came, by those that they have now."""


def own_class(module: nn.Module) -> type[nn.Module]:
    """The class that `module` had before gates came."""
    return OWN_CLASSES.get(type(module), type(module))


def what_became_of(network: nn.Module, name: str) -> str:
    """Return whether it was taken away, or what it was exchanged for."""
    now: object = network
    for part in name.split("."):
        now = now._modules.get(part) if isinstance(now, nn.Module) else None
    if now is None:
        return "taken away"
    kind = type(now).__name__
    return f"exchanged for {'an' if kind[0] in 'AEIOU' else 'a'} {kind}"
