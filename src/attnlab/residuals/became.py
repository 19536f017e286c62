"""What became of a module that is looked for under the name that it had."""

from __future__ import annotations

from torch import nn


def what_became_of(network: nn.Module, name: str) -> str:
    """Whether it was taken away, or what it was exchanged for."""
    now: object = network
    for part in name.split("."):
        now = now._modules.get(part) if isinstance(now, nn.Module) else None
    if now is None:
        return "taken away"
    kind = type(now).__name__
    return f"exchanged for {'an' if kind[0] in 'AEIOU' else 'a'} {kind}"
