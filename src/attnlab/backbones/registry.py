"""The networks by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import nn

from attnlab._errors import check_options, unknown_name
from attnlab.backbones.resnet import basic_resnet, bottleneck_resnet


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


def _resnet(depth: int, build: Callable[..., nn.Module], blocks: str) -> BackboneInfo:
    return BackboneInfo(
        f"resnet{depth}",
        build,
        f"CIFAR ResNet-{depth}, {blocks} blocks",
        "He et al., CVPR 2016",
        fixed={"depth": depth},
        public_names={"linear.": "fc."},
    )


BACKBONES: dict[str, BackboneInfo] = {
    info.name: info
    for info in (
        *(_resnet(depth, basic_resnet, "basic") for depth in (20, 32, 44, 56, 110)),
        *(_resnet(depth, bottleneck_resnet, "bottleneck") for depth in (83, 164, 245)),
    )
}


def list_models() -> tuple[str, ...]:
    """The names of attnlab's own networks."""
    return tuple(BACKBONES)


def build_backbone(name: str, num_classes: int = 10, **options: object) -> nn.Module:
    """Build the network `name`; unknown names and options are errors."""
    if name not in BACKBONES:
        raise unknown_name("network", name, BACKBONES)
    info = BACKBONES[name]
    check_options(f"Network {name!r}", info.build, options, skip=("num_classes", *info.fixed))
    return info.build(num_classes=num_classes, **info.fixed, **options)
