"""Trained attention of timm and torchvision as our own gates, by a map of keys.

Their modules multiply; ours return the gate. The weights are the same but for their names, for
1 x 1 convolutions that are linear layers here, and for the order of two planes in CBAM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Final, TypeVar

import torch
from torch import Tensor, nn

from attnlab._errors import OptionError, WeightsError, unknown_name
from attnlab.gates._gate import VectorGate
from attnlab.gates._shared import Excitation, NonlinearityName, SquashName, squash_named
from attnlab.gates.cbam import ConvolutionalBlockAttention
from attnlab.gates.eca import EfficientChannelAttention
from attnlab.gates.se import EffectiveSqueezeExcitation, SqueezeExcitation

LibraryGate = VectorGate | ConvolutionalBlockAttention

_Build = Callable[[nn.Module, int | None], LibraryGate]
_Name = TypeVar("_Name", bound=str)
_LAYERS: Final = ("fc1", "fc2")
_KINDS: Final = ("weight", "bias")
_STATISTICS: Final = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


def _layers(theirs: tuple[str, str]) -> dict[str, str]:
    return {
        f"{their}.{kind}": f"excitation.{our}.{kind}"
        for their, our in zip(theirs, _LAYERS, strict=True)
        for kind in _KINDS
    }


LIBRARY_KEYS: Final[dict[str, dict[str, str]]] = {
    "timm:se": _layers(("fc1", "fc2")),
    "timm:efficientnet_se": _layers(("conv_reduce", "conv_expand")),
    "torchvision:se": _layers(("fc1", "fc2")),
    "timm:ese": {"fc.weight": "fc.weight", "fc.bias": "fc.bias"},
    "timm:eca": {"conv.weight": "conv.weight"},
    "timm:cbam": {
        **_layers(("channel.fc1", "channel.fc2")),
        "spatial.conv.conv.weight": "conv.weight",
        **{f"spatial.conv.bn.{name}": f"norm.{name}" for name in _STATISTICS},
    },
}
"""The state-dict keys of each module, and ours."""

_NONLINEARITIES: Final[dict[str, NonlinearityName]] = {
    "ReLU": "relu",
    "SiLU": "silu",
    "Swish": "silu",
}
_SQUASHES: Final[dict[str, SquashName]] = {
    "Sigmoid": "sigmoid",
    "Hardsigmoid": "hard_sigmoid",
    "HardSigmoid": "hard_sigmoid",
    "HardSigmoidMe": "hard_sigmoid",
}


def library_weights(source: str, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a module, as its `state_dict` has them, under the names of our gate.

    `source` is one of `LIBRARY_KEYS`. timm's CBAM is our `cbam` with `official=True`; its two
    layers may have no bias, which is a bias of 0.
    """
    if source not in LIBRARY_KEYS:
        raise unknown_name("source of weights", source, LIBRARY_KEYS)
    keys = LIBRARY_KEYS[source]
    foreign = [name for name in weights if name not in keys]
    if foreign:
        raise WeightsError(
            f"The weights have {', '.join(foreign)}, which {source!r} does not. Its keys are: "
            f"{', '.join(keys)}."
        )
    missing = [name for name in keys if name not in weights and not name.endswith(".bias")]
    if missing:
        raise WeightsError(f"The weights of {source!r} lack {', '.join(missing)}.")
    ours = {keys[name]: value for name, value in weights.items()}
    if source != "timm:eca":
        ours = {n: v.flatten(1) if _is_layer(n) and v.dim() == 4 else v for n, v in ours.items()}
    if source == "timm:cbam":
        # Theirs has the mean of the channels first and their maximum after it.
        ours["conv.weight"] = ours["conv.weight"].flip(1)
        for name in _LAYERS:
            weight = ours[f"excitation.{name}.weight"]
            ours.setdefault(f"excitation.{name}.bias", weight.new_zeros(weight.shape[0]))
    return ours


def _is_layer(name: str) -> bool:
    return name.endswith(("fc1.weight", "fc2.weight", "fc.weight"))


def gate_from_library(module: nn.Module, channels: int | None = None) -> LibraryGate:
    """Our gate with the weights, the dtype, the device and the mode of timm's or torchvision's.

    `module(x)` is then `x * gate(x)`. It takes the squeeze-and-excitation modules of both, and
    timm's effective SE, ECA and CBAM; a variant that ours cannot express is refused. Any other
    module that multiplies goes in as it is, by `Multiplied`. `channels` is needed for ECA only,
    whose module does not know its number of channels.
    """
    sources = _sources()
    if type(module) not in sources:
        known = ", ".join(f"{kind.__module__}.{kind.__name__}" for kind in sources)
        raise OptionError(
            f"Expected a module of timm or torchvision but got {type(module).__name__}. It takes: "
            f"{known}. Any module that returns its input times a gate goes in with Multiplied."
        )
    source, build = sources[type(module)]
    gate = build(module, channels)
    if channels not in (None, gate.channels):
        raise OptionError(
            f"{type(module).__name__} was built for {gate.channels} channels, not for {channels}. "
            "Leave channels out."
        )
    weights = library_weights(source, module.state_dict())
    reference = next(iter(weights.values()))
    gate.to(device=reference.device, dtype=reference.dtype)
    gate.load_state_dict(weights)
    return gate.train(module.training)


@cache
def _sources() -> dict[type[nn.Module], tuple[str, _Build]]:
    from timm.layers import EcaModule, EffectiveSEModule, SEModule
    from timm.layers.cbam import CbamModule
    from timm.models._efficientnet_blocks import SqueezeExcite
    from timm.models.senet import SEModule as LegacySEModule
    from torchvision.ops import SqueezeExcitation as TorchvisionSqueezeExcitation

    return {
        SEModule: ("timm:se", _se("fc1", "act", "gate")),
        LegacySEModule: ("timm:se", _se("fc1", "relu", "sigmoid")),
        SqueezeExcite: ("timm:efficientnet_se", _se("conv_reduce", "act1", "gate")),
        TorchvisionSqueezeExcitation: (
            "torchvision:se",
            _se("fc1", "activation", "scale_activation"),
        ),
        EffectiveSEModule: ("timm:ese", _ese),
        EcaModule: ("timm:eca", _eca),
        CbamModule: ("timm:cbam", _cbam),
    }


def _se(layer: str, between: str, last: str) -> _Build:
    def build(module: nn.Module, _: int | None) -> SqueezeExcitation:
        _refuse_maximum(module)
        if not isinstance(getattr(module, "bn", nn.Identity()), nn.Identity):
            raise _unlike(module, "a norm between its layers")
        first = module.get_submodule(layer)
        assert isinstance(first, nn.Conv2d)
        nonlinearity = _named(module, between, _NONLINEARITIES)
        squash = _named(module, last, _SQUASHES)
        channels, hidden, bias = first.in_channels, first.out_channels, first.bias is not None
        gate = SqueezeExcitation(channels, squash=squash)
        # The hidden width of theirs can be any number, also above the number of channels.
        gate.excitation = Excitation(channels, hidden, channels, bias, nonlinearity)
        return gate

    return build


def _ese(module: nn.Module, _: int | None) -> EffectiveSqueezeExcitation:
    _refuse_maximum(module)
    layer = module.get_submodule("fc")
    assert isinstance(layer, nn.Conv2d)
    gate = EffectiveSqueezeExcitation(layer.in_channels)
    gate.squash = squash_named(_named(module, "gate", _SQUASHES))
    gate.official = gate.squash is not torch.sigmoid
    return gate


def _eca(module: nn.Module, channels: int | None) -> EfficientChannelAttention:
    if getattr(module, "conv2", None) is not None:
        raise _unlike(module, "a second convolution (use_mlp)")
    if _named(module, "gate", _SQUASHES) != "sigmoid":
        raise _unlike(module, "a last function other than a sigmoid")
    conv = module.get_submodule("conv")
    assert isinstance(conv, nn.Conv1d)
    if channels is None:
        raise OptionError(
            f"{type(module).__name__} does not know its number of channels, which our gate asks "
            "for. Pass it: gate_from_library(module, channels=...)."
        )
    return EfficientChannelAttention(channels, kernel_size=conv.kernel_size[0])


def _cbam(module: nn.Module, _: int | None) -> ConvolutionalBlockAttention:
    for last in ("channel.gate", "spatial.gate"):
        if _named(module, last, _SQUASHES) != "sigmoid":
            raise _unlike(module, "a last function other than a sigmoid")
    if _named(module, "channel.act", _NONLINEARITIES) != "relu":
        raise _unlike(module, "a function other than ReLU between its layers")
    layer, conv = module.get_submodule("channel.fc1"), module.get_submodule("spatial.conv.conv")
    norm = module.get_submodule("spatial.conv.bn")
    assert isinstance(layer, nn.Conv2d)
    assert isinstance(conv, nn.Conv2d)
    assert isinstance(norm, nn.BatchNorm2d)
    channels, hidden, size = layer.in_channels, layer.out_channels, conv.kernel_size[0]
    gate = ConvolutionalBlockAttention(channels, kernel_size=size, official=True)
    gate.excitation = Excitation(channels, hidden, channels, bias=True)
    assert gate.norm is not None
    gate.norm.eps, gate.norm.momentum = norm.eps, norm.momentum
    return gate


def _named(module: nn.Module, attribute: str, names: Mapping[str, _Name]) -> _Name:
    found = type(module.get_submodule(attribute))
    ours = found.__module__.partition(".")[0] in ("torch", "timm")
    if not ours or found.__name__ not in names:
        raise _unlike(module, f"{found.__name__} as its {attribute}")
    return names[found.__name__]


def _refuse_maximum(module: nn.Module) -> None:
    if getattr(module, "add_maxpool", False):
        raise _unlike(module, "a maximum next to the mean (add_maxpool)")


def _unlike(module: nn.Module, what: str) -> OptionError:
    return OptionError(
        f"{type(module).__name__} has {what}, which our gate does not have. Take it as it is: "
        "Multiplied(module)."
    )
