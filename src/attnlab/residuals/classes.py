"""The classes of modules before gates came: a module that hosts a gate gets another one."""

from __future__ import annotations

from torch import nn

OWN_CLASSES: dict[type[nn.Module], type[nn.Module]] = {}
"""The classes that modules had before gates came, by those that they have now."""


def own_class(module: nn.Module) -> type[nn.Module]:
    """The class that `module` had before gates came."""
    return OWN_CLASSES.get(type(module), type(module))
