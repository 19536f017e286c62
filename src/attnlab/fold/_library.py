"""Squeeze-and-excitation modules of timm and torchvision: where each one's gate can be seen."""

from __future__ import annotations

from functools import cache

from torch import nn

from attnlab.fold._places import DEPENDS_ON_INPUT, Held, Place
from attnlab.insert.sites import named_sites
from attnlab.record.graph import Graph


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
    attribute = _gate_attributes().get(type(module))
    return None if attribute is None else module.get_submodule(attribute)


def own_places(model: nn.Module, graph: Graph) -> list[Place]:
    """A place for every known attention module of `model` itself."""
    names = [name for name, module in model.named_modules() if gate_submodule(module) is not None]
    places = []
    for site in named_sites(model, graph, names):
        reason = site.refusal or DEPENDS_ON_INPUT
        places.append(Place(site, (Held(site.module, None, reason),), own=True))
    return places
