"""Attention modules that networks bring along: where the gate of each one can be seen.

Known are squeeze-and-excitation and ECA of timm and torchvision. A class of the user's own is known
once it is named: `{"SELayer": "fc"}` says that `fc` of every `SELayer` returns its gate.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from torch import nn

from attnlab._errors import OptionError, nearest
from attnlab.residuals.classes import own_class

OwnGates = Mapping[str, str]
"""Classes by name, and the submodule whose output is the gate that multiplies their input."""


class GateAt(NamedTuple):
    """Where the gate of an attention module can be seen."""

    submodule: str
    """What returns it."""
    channel_axis: int = 1
    """Of what it returns; -1 where channels are last."""


@cache
def _known() -> dict[type[nn.Module], GateAt]:
    from timm.layers.eca import CecaModule, EcaModule
    from timm.layers.squeeze_excite import EffectiveSEModule, SEModule, SqueezeExciteCl
    from timm.models._efficientnet_blocks import SqueezeExcite
    from timm.models.hgnet import EseModule
    from timm.models.senet import SEModule as LegacySEModule
    from torchvision.ops.misc import SqueezeExcitation

    return {
        SEModule: GateAt("gate"),
        EffectiveSEModule: GateAt("gate"),
        SqueezeExciteCl: GateAt("gate", -1),
        SqueezeExcite: GateAt("gate"),
        EseModule: GateAt("sigmoid"),
        EcaModule: GateAt("gate", -1),
        CecaModule: GateAt("gate", -1),
        LegacySEModule: GateAt("sigmoid"),
        SqueezeExcitation: GateAt("scale_activation"),
    }


def gate_at(module: nn.Module, own: OwnGates | None = None) -> GateAt | None:
    """Where the gate of an attention module is; None if `module` is not known as one."""
    kind = own_class(module)
    known = _known().get(kind)
    if own and kind.__name__ in own:
        return GateAt(own[kind.__name__], 1 if known is None else known.channel_axis)
    return known


_NOT_PER_CHANNEL = {
    "CbamModule": "has one gate per channel and one per pixel, one after the other",
    "LightCbamModule": "has one gate per channel and one per pixel, one after the other",
    "GatherExcite": "has a gate that may differ from place to place",
    "GlobalContext": "may add to its input as well as multiply it",
    "SelectiveKernel": "chooses between branches",
    "SplitAttn": "chooses between branches",
    "NonLocalAttn": "is attention between pixels",
    "BatNonLocalAttn": "is attention between pixels",
    "BottleneckAttn": "is attention between pixels",
    "HaloAttn": "is attention between pixels",
    "LambdaLayer": "is attention between pixels",
}
"""Attention of timm that is not one gate per channel."""


def unknown_attention(model: nn.Module) -> str:
    """A sentence on the attention of `model` that no constant can stand for; or nothing."""
    kinds = dict.fromkeys(own_class(module).__name__ for module in model.modules())
    found = [f"{kind} {_NOT_PER_CHANNEL[kind]}" for kind in kinds if kind in _NOT_PER_CHANNEL]
    return f" No constant per channel stands for what it has: {'; '.join(found)}." if found else ""


def check_own_gates(model: nn.Module, own: OwnGates) -> None:
    """Refuse classes that `model` has not, and submodules that they have not."""
    classes: dict[str, nn.Module] = {}
    for module in model.modules():
        classes.setdefault(own_class(module).__name__, module)
    for kind, submodule in own.items():
        if kind not in classes:
            raise OptionError(
                f"{type(model).__name__} has no module of the class {kind!r}."
                f"{nearest(kind, classes)} Expected the name of a class, and the submodule that "
                f"returns its gate: {{'SELayer': 'fc'}}."
            )
        names = [name for name, _ in classes[kind].named_modules() if name]
        if submodule not in names:
            raise OptionError(
                f"{kind} has no submodule {submodule!r}.{nearest(submodule, names)} Expected the "
                f"one that returns its gate, of: {', '.join(names) or 'none'}."
            )
