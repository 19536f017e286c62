"""The part of a network that attention and stiffness are about."""

from __future__ import annotations

from torch import nn

_DETECTORS = "torchvision.models.detection."


def trunk(model: nn.Module) -> str:
    """The name of a torchvision detector's backbone without its pyramid, whose sums are not
    residual steps; empty for any other network, all of which counts."""
    if not any(each.__module__.startswith(_DETECTORS) for each in type(model).__mro__):
        return ""
    names = {name for name, _ in model.named_modules()}
    return next((name for name in ("backbone.body", "backbone") if name in names), "")
