"""The networks by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import nn

from attnlab._checked import check_whole
from attnlab._errors import OptionError, check_options, unknown_name
from attnlab.networks.backbones.decoder import Decoder
from attnlab.networks.backbones.mobile import MobileNetV1, ShuffleNetV2
from attnlab.networks.backbones.reparameterized import RepVGG, basic_acnet, bottleneck_acnet
from attnlab.networks.backbones.resnet import basic_resnet, bottleneck_resnet
from attnlab.networks.backbones.style import FastStyle
from attnlab.networks.backbones.unet import UNet
from attnlab.networks.backbones.vgg import VGG19

DEFAULT_CLASSES = 10


@dataclass(frozen=True)
class BackboneInfo:
    """One network: how it is built, which options its name fixes, and where it comes from."""

    name: str
    build: Callable[..., nn.Module]
    title: str
    paper: str
    fixed: Mapping[str, object] = field(default_factory=dict)
    public_names: Mapping[str, str] = field(default_factory=dict)
    """Beginnings of state-dict names in public checkpoints, and what they are called here."""
    classifies: bool = True
    """Whether the network has one output per class."""
    of_pixels: bool = False
    """Whether the network has an output per class for every pixel."""
    outputs: int = DEFAULT_CLASSES
    """How many classes it has unless told; of a language model, tokens."""


def _resnet(depth: int, build: Callable[..., nn.Module], blocks: str) -> BackboneInfo:
    return BackboneInfo(
        f"resnet{depth}",
        build,
        f"CIFAR ResNet-{depth}, {blocks} blocks",
        "He et al., CVPR 2016",
        fixed={"depth": depth},
        public_names={"linear.": "fc."},
    )


def _acnet(depth: int, build: Callable[..., nn.Module]) -> BackboneInfo:
    return BackboneInfo(
        f"resnet{depth}_acnet",
        build,
        f"CIFAR ResNet-{depth} with asymmetric convolution blocks",
        "Ding et al., ICCV 2019",
        fixed={"depth": depth},
    )


BACKBONES: dict[str, BackboneInfo] = {
    info.name: info
    for info in (
        *(_resnet(depth, basic_resnet, "basic") for depth in (20, 32, 44, 56, 110)),
        *(_resnet(depth, bottleneck_resnet, "bottleneck") for depth in (83, 164, 245)),
        _acnet(56, basic_acnet),
        *(_acnet(depth, bottleneck_acnet) for depth in (83, 164)),
        BackboneInfo("vgg19_bn", VGG19, "VGG19 with BatchNorm", "Simonyan, Zisserman, ICLR 2015"),
        BackboneInfo("mobilenet_v1", MobileNetV1, "MobileNetV1", "Howard et al., 2017"),
        BackboneInfo("shufflenet_v2", ShuffleNetV2, "ShuffleNetV2 x1", "Ma et al., ECCV 2018"),
        BackboneInfo("repvgg_a0", RepVGG, "RepVGG-A0", "Ding et al., CVPR 2021"),
        BackboneInfo(
            "fast_style",
            FastStyle,
            "Fast style transfer: images to pictures",
            "Johnson et al., ECCV 2016",
            classifies=False,
        ),
        BackboneInfo(
            "unet",
            UNet,
            "Small U-Net of residual blocks: a class for every pixel",
            "Ronneberger et al., MICCAI 2015",
            of_pixels=True,
        ),
        BackboneInfo(
            "decoder",
            Decoder,
            "Small language model: RMSNorm, rotary positions, SwiGLU",
            "Touvron et al., 2023",
            outputs=256,
        ),
    )
}
"""Every network of attnlab's own by its name."""


def list_models() -> tuple[str, ...]:
    """The names of attnlab's own networks."""
    return tuple(BACKBONES)


def build_backbone(name: str, num_classes: int | None = None, **options: object) -> nn.Module:
    """Build the network `name`, for 10 classes (a language model: 256 bytes) unless told; unknown
    names and options are errors."""
    if name not in BACKBONES:
        raise unknown_name("network", name, BACKBONES)
    info = BACKBONES[name]
    check_options(f"Network {name!r}", info.build, options, skip=("num_classes", *info.fixed))
    if not info.classifies:
        if num_classes is not None:
            raise OptionError(
                f"Network {name!r} has no classes but got num_classes = {num_classes}. Leave it "
                f"out, or choose a network that classifies."
            )
        return info.build(**info.fixed, **options)
    classes = info.outputs if num_classes is None else num_classes
    check_whole("num_classes", classes, 1)
    return info.build(num_classes=classes, **info.fixed, **options)


def public_names(name: str) -> Mapping[str, str]:
    """Beginnings of names in public files of a network of ours, and what they are called here."""
    return BACKBONES[name].public_names if name in BACKBONES else {}
