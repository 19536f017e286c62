"""Detectors: torchvision's own, whole, or built on a backbone with stages; and trained values for
one of other categories."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attnlab._errors import InputError, OptionError, unknown_name
from attnlab.data import Facts, Value
from attnlab.tasks.task import create_backbone


@torch.no_grad()
def transfer(trained: nn.Module, network: nn.Module) -> None:
    """Give `network` all values of `trained` whose shapes fit: all but those of its predictors.

    torchvision freezes the norms of trained detectors (`FrozenBatchNorm2d`, some with ε = 0);
    `network` has plain ones, so ε goes into their weight: the function stays the same.
    """
    modules = dict(trained.named_modules())
    for name, module in network.named_modules():
        source = modules[name]
        if isinstance(module, nn.BatchNorm2d) and not isinstance(source, nn.BatchNorm2d):
            variance = source.running_var.double()
            scale = ((variance + module.eps) / (variance + source.eps)).sqrt()
            module.weight.copy_(source.weight.double() * scale)
            for each in ("bias", "running_mean", "running_var"):
                getattr(module, each).copy_(getattr(source, each))
            continue
        own = {**module._parameters, **module._buffers}
        for each, tensor in own.items():
            value = getattr(source, each, None)
            if tensor is not None and value is not None and value.shape == tensor.shape:
                tensor.copy_(value)


class HeldBatchNorm2d(nn.BatchNorm2d):
    """A batch norm that stays in eval mode: its statistics are those that it came with, its weight
    and bias train. What mmdetection calls `norm_eval`."""

    def train(self, mode: bool = True) -> HeldBatchNorm2d:
        del mode
        super().train(False)
        return self


def hold_norms(network: nn.Module) -> int:
    """Exchange every batch norm for one that is held, its keys kept; return how many."""
    norms = [module for module in network.modules() if type(module) is nn.BatchNorm2d]
    for norm in norms:
        norm.__class__ = HeldBatchNorm2d
        norm.eval()
    return len(norms)


def freeze(body: nn.Module, stages: int) -> None:
    """Freeze what comes before the first stage, and `stages` stages."""
    for name, child in body.named_children():
        number = name.removeprefix("layer")
        if number.isdigit() and int(number) > stages:
            return
        child.requires_grad_(False)


DETECTORS = ("faster_rcnn", "retinanet", "fcos")
PRETRAINED = ("weights", "weights_backbone")
_STAGE = re.compile(r"layer[1-9]")
_FEW_PROPOSALS = {
    "rpn_pre_nms_top_n_train": 200,
    "rpn_post_nms_top_n_train": 60,
    "rpn_pre_nms_top_n_test": 200,
    "rpn_post_nms_top_n_test": 40,
    "rpn_batch_size_per_image": 64,
    "box_batch_size_per_image": 32,
    "box_detections_per_img": 20,
}
"""Numbers of proposals for small images, which hold few objects; torchvision proposes thousands."""
_SMALL = 128
"""Channels of the last stage up to which a backbone is made for small images."""


@dataclass(frozen=True)
class DetectorPlan:
    """The detector that is built on a backbone with stages, and the size of its images."""

    detector: str = "faster_rcnn"
    min_size: int | None = None
    """The short side to which an image is resized; None is the detector's own choice, and for
    small backbones the data's own size."""
    max_size: int | None = None


def is_whole(backbone: str) -> bool:
    """Return whether the name is that of one of torchvision's detectors."""
    library, _, name = backbone.partition(":")
    if library != "torchvision":
        return False
    from torchvision.models import get_model_builder, list_models

    return name in list_models() and get_model_builder(name).__module__.startswith(
        "torchvision.models.detection"
    )


def build_detector(
    backbone: str, options: Mapping[str, Value], facts: Facts, plan: DetectorPlan
) -> nn.Module:
    """A detector for the categories of `facts`; its label 0 is the background."""
    if plan.detector not in DETECTORS:
        raise unknown_name("detector", plan.detector, DETECTORS)
    if is_whole(backbone):
        return _whole(backbone, options, facts, plan)
    body = create_backbone(backbone, None, options)
    names = [name for name, _ in body.named_children() if _STAGE.fullmatch(name)]
    if len(names) < 2:
        raise InputError(
            f"Expected a detector of torchvision, or a backbone with stages layer1, layer2, … as "
            f"ResNets have them, but {backbone!r} has the parts "
            f"{', '.join(name for name, _ in body.named_children())}."
        )
    small = _channels(body, names)[-1] <= _SMALL
    if small:
        # The stem is made for 32 pixels: without this, every map would be four times as large.
        stem = body.get_submodule("conv1")
        assert isinstance(stem, nn.Conv2d)
        stem.stride = (2, 2)
    return (
        _build_small(body, names, facts, plan) if small else _build_large(body, names, facts, plan)
    )


def _whole(
    backbone: str, options: Mapping[str, Value], facts: Facts, plan: DetectorPlan
) -> nn.Module:
    if plan.detector != DETECTORS[0]:
        raise OptionError(
            f"{backbone!r} is a detector already: leave the task's option detector out."
        )
    if "keypoint" in backbone:
        raise OptionError(f"{backbone!r} learns key points, which data with boxes do not have.")
    sizes = {"min_size": plan.min_size, "max_size": plan.max_size}
    given = {**options, **{name: size for name, size in sizes.items() if size is not None}}
    plain = {name: value for name, value in given.items() if name not in PRETRAINED}
    network = create_backbone(backbone, facts.outputs + 1, plain)
    if len(plain) < len(given):
        # Its norms are frozen and its number of classes is another, so only values are taken.
        transfer(create_backbone(backbone, None, given), network)
    heads: Any = getattr(network, "roi_heads", None)
    if heads is not None and heads.has_mask():
        heads.mask_roi_pool = heads.mask_head = heads.mask_predictor = None
    return network


def _build_large(body: nn.Module, names: list[str], facts: Facts, plan: DetectorPlan) -> nn.Module:
    """Build a detector as torchvision builds its own on ResNet50."""
    from torchvision.models.detection import FCOS, FasterRCNN, RetinaNet
    from torchvision.ops.feature_pyramid_network import LastLevelMaxPool, LastLevelP6P7

    sizes = {"min_size": plan.min_size or 800, "max_size": plan.max_size or 1333}
    classes = facts.outputs + 1
    if plan.detector == "faster_rcnn":
        return FasterRCNN(_pyramid(body, names, 256, LastLevelMaxPool()), classes, **sizes)
    if plan.detector == "fcos":
        return FCOS(_pyramid(body, names[1:], 256, LastLevelP6P7(256, 256)), classes, **sizes)
    above = LastLevelP6P7(_channels(body, names)[-1], 256)
    return RetinaNet(_pyramid(body, names[1:], 256, above), classes, **sizes)


def _build_small(body: nn.Module, names: list[str], facts: Facts, plan: DetectorPlan) -> nn.Module:
    """Build a detector for images of about 100 pixels: seconds per epoch on one core."""
    from torchvision.models.detection import FCOS, FasterRCNN, RetinaNet
    from torchvision.models.detection.anchor_utils import AnchorGenerator
    from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
    from torchvision.ops import MultiScaleRoIAlign
    from torchvision.ops.feature_pyramid_network import LastLevelMaxPool

    width, head, pooled, classes = 64, 128, 5, facts.outputs + 1
    side = plan.min_size or min(facts.shape[1:])
    pyramid = _pyramid(body, names[-2:], width, LastLevelMaxPool())
    anchors = tuple((round(side * share / 96),) for share in (16, 28, 44))
    shared: dict[str, object] = {
        "min_size": side,
        "max_size": plan.max_size or max(side, *facts.shape[1:]),
        "image_mean": list(facts.mean),
        "image_std": list(facts.std),
    }
    if plan.detector == "fcos":
        strides = AnchorGenerator(((4,), (8,), (16,)), ((1.0,),) * 3)
        return FCOS(pyramid, classes, anchor_generator=strides, topk_candidates=200, **shared)
    generator = AnchorGenerator(anchors, ((1.0,),) * 3)
    if plan.detector == "retinanet":
        return RetinaNet(
            pyramid, classes, anchor_generator=generator, topk_candidates=200, **shared
        )
    return FasterRCNN(
        pyramid,
        rpn_anchor_generator=generator,
        box_roi_pool=MultiScaleRoIAlign(["0", "1"], pooled, 2),
        box_head=TwoMLPHead(width * pooled**2, head),
        box_predictor=FastRCNNPredictor(head, classes),
        **_FEW_PROPOSALS,
        **shared,
    )


def _pyramid(body: nn.Module, names: list[str], width: int, above: nn.Module) -> nn.Module:
    from torchvision.models.detection.backbone_utils import BackboneWithFPN

    channels = _channels(body, names)
    returned = {name: str(number) for number, name in enumerate(names)}
    return BackboneWithFPN(_in_order(body, names[-1]), returned, channels, width, above)


def _channels(body: nn.Module, names: list[str]) -> list[int]:
    return [each.shape[1] for each in _seen(body, names)]


def _seen(body: nn.Module, names: list[str]) -> list[Tensor]:
    """Return what these parts give on a small image, in eval mode."""
    found: dict[str, Tensor] = {}
    hooks = [
        body.get_submodule(name).register_forward_hook(
            lambda _module, _inputs, output, name=name: found.__setitem__(name, output)
        )
        for name in names
    ]
    training = body.training
    try:
        with torch.no_grad():
            body.eval()(torch.linspace(-1, 1, 3 * 64 * 64).reshape(1, 3, 64, 64))
    finally:
        body.train(training)
        for hook in hooks:
            hook.remove()
    return [found[name] for name in names]


def _in_order(body: nn.Module, last: str) -> nn.Sequential:
    """The parts of `body` up to `last`, to be run one after the other; an activation that is not
    a module is put in front of the first stage. Refused if that is not what `body` does."""
    parts: list[tuple[str, nn.Module]] = []
    for name, child in body.named_children():
        parts.append((name, child))
        if name == last:
            break
    first = next(n for n, (name, _) in enumerate(parts) if _STAGE.fullmatch(name))
    (expected,) = _seen(body, [last])
    for between in ([], [("relu", nn.ReLU())]):
        if between and "relu" in dict(parts):
            continue
        chain = nn.Sequential(OrderedDict([*parts[:first], *between, *parts[first:]]))
        chain.train(body.training)
        if torch.equal(_seen(chain, [last])[0], expected):
            return chain
    raise InputError(
        f"{type(body).__name__} does more than run its parts one after the other, so no pyramid "
        f"can be built on its stages."
    )
