"""Squeeze-and-excitation modules of timm and torchvision: where each one's gate can be seen."""

from __future__ import annotations

from functools import cache

from torch import nn

from attnlab.insert._hosted import own_class


@cache
def _gate_attributes() -> dict[type[nn.Module], str]:
    """The classes, and the submodule whose output is the gate that multiplies the input."""
    from timm.layers.squeeze_excite import EffectiveSEModule, SEModule, SqueezeExciteCl
    from timm.models._efficientnet_blocks import SqueezeExcite
    from timm.models.senet import SEModule as LegacySEModule
    from torchvision.ops.misc import SqueezeExcitation

    return {
        SEModule: "gate",
        EffectiveSEModule: "gate",
        SqueezeExciteCl: "gate",
        SqueezeExcite: "gate",
        LegacySEModule: "sigmoid",
        SqueezeExcitation: "scale_activation",
    }


def gate_submodule(module: nn.Module) -> nn.Module | None:
    """The submodule of a known attention module that returns its gate; None if it is not known."""
    attribute = _gate_attributes().get(own_class(module))
    return None if attribute is None else module.get_submodule(attribute)
