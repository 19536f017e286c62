"""Discovery and insertion on small timm networks of many designs.

The expected numbers are read off timm's sources (block classes times depths), not off the code
under test; `python -m benchmarks.coverage truth` counts the same additions while they
run.
"""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
import timm
import torch
from timm.layers import DropPath
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from attnlab._errors import SiteError, StepsNotFoundError
from attnlab.residuals.steps import steps
from attnlab.surgery.insertion import attachments
from attnlab.surgery.insertion.insert import insert


@dataclass(frozen=True)
class Family:
    model: str
    stages: list[int]
    """Steps in each stage; their sum is the number of steps."""
    projections: int = 0
    options: dict[str, Any] = field(default_factory=dict)


def small(**options: Any) -> dict[str, Any]:
    return {"img_size": 64, **options}


CONVOLUTIONAL = [
    Family("resnet10t", [1, 1, 1, 1], projections=3),
    Family("resnetv2_18", [2, 2, 2, 2], projections=3),
    Family("regnetx_002", [1, 1, 4, 7], projections=4),
    Family("resnest14d", [1, 1, 1, 1], projections=4),
    Family("dla46_c", [2, 4, 4, 2], projections=4),
    Family("dpn48b", [3, 4, 6, 3], projections=4),
    Family("ghostnet_050", [1, 2, 2, 4, 2, 5], projections=5),
    Family("cs3darknet_s", [1, 3, 4, 1]),
    Family("efficientnet_b0", [1, 1, 2, 2, 3]),
    Family("mobilenetv3_small_050", [1, 4, 2]),
    Family("convnext_atto", [2, 2, 6, 2]),
    Family("starnet_s050", [1, 1, 3, 1]),
]
TRANSFORMERS = [
    Family("vit_tiny_patch16_224", [6], options=small(depth=3)),
    Family("vit_dpwee_patch16_reg1_gap_256", [3], options=small(depth=3)),
    Family("deit_tiny_distilled_patch16_224", [4], options=small(depth=2)),
    Family("cait_xxs24_224", [4, 4], options=small(depth=2)),
    Family("xcit_nano_12_p16_224", [6, 4], options=small(depth=2)),
    Family("pvt_v2_b0", [4, 4, 4, 4]),
    Family("twins_svt_small", [3, 3, 5, 3], options=small(depths=(1, 1, 2, 1))),
    Family(
        "swin_tiny_patch4_window7_224",
        [4, 4, 4, 4],
        options=small(window_size=4, embed_dim=24, depths=(2, 2, 2, 2)),
    ),
    Family(
        "swinv2_tiny_window8_256",
        [2, 2, 4, 2],
        options=small(window_size=4, embed_dim=24, depths=(1, 1, 2, 1)),
    ),
    Family(
        "hiera_tiny_224",
        [2, 2, 4, 2],
        projections=3,
        options={"img_size": (64, 64), "stages": (1, 1, 2, 1)},
    ),
    Family("gmlp_ti16_224", [30], options=small()),
]
MIXED = [
    Family("levit_128s", [4, 7, 9], options=small()),
    Family("maxvit_rmlp_pico_rw_256", [5] * 4, projections=4, options=small(depths=(1, 1, 1, 1))),
    Family("mobilevitv2_050", [1, 4, 8, 6]),
    Family("edgenext_xx_small", [2, 3, 7, 3]),
    Family("poolformer_s12", [4, 4, 12, 4]),
    Family("efficientvit_m0", [7, 14, 17], options=small()),
    Family("efficientvit_b0", [1, 1, 1, 4, 4]),
]
FAMILIES = CONVOLUTIONAL + TRANSFORMERS + MIXED


def build(family: Family) -> nn.Module:
    """Random weights, none of them zero: a branch that starts at zero hands no gradient on."""
    torch.manual_seed(0)
    model = timm.create_model(family.model, pretrained=False, num_classes=10, **family.options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.02)
    return model.eval()


def images() -> Tensor:
    return torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))


def outputs(model: nn.Module) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(model(images())) if isinstance(leaf, Tensor)]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.model)
def test_steps_and_insertion(family: Family) -> None:
    model = build(family)

    found = steps(model, images())
    assert list(Counter(step.stage for step in found).values()) == family.stages
    kinds = [step.kind for step in found]
    assert kinds.count("projection") == family.projections
    assert kinds.count("identity") == sum(family.stages) - family.projections

    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        plain = outputs(model)
    gated, receipt = insert(model, "se", example=images(), start="identity")
    attached = dict(attachments(gated))
    assert len(attached) == sum(family.stages)
    assert receipt.parameters_added > 0
    with torch.no_grad():
        for unchanged, expected in zip(outputs(gated), plain, strict=True):
            torch.testing.assert_close(unchanged, expected, rtol=1e-6, atol=1e-6)

    after = gated.state_dict()
    assert [name for name in before if not torch.equal(after[name], before[name])] == []
    assert gated.load_state_dict(before, strict=False).unexpected_keys == []
    assert list(model.state_dict()) == list(before)  # the model itself is not touched

    for module in gated.modules():
        if isinstance(module, DropPath):
            module.drop_prob = 0.0  # a branch dropped for the whole batch has no gradient
    torch.stack([output.square().sum() for output in outputs(gated.train())]).sum().backward()
    unreached = [
        name
        for name, attachment in attached.items()
        if not any(
            parameter.grad is not None and bool((parameter.grad != 0).any())
            for parameter in attachment.parameters()
        )
    ]
    assert unreached == []


BLOCKS = {"Block", "SpatialGatingBlock", "ConvNeXtBlock", "MetaFormerBlock", "SwinTransformerBlock"}


@pytest.mark.parametrize(
    "name",
    [
        "vit_tiny_patch16_224",
        "gmlp_ti16_224",
        "convnext_atto",
        "poolformer_s12",
        "swin_tiny_patch4_window7_224",
        "pvt_v2_b0",
    ],
)
def test_zero_step_size_removes_the_blocks(name: str) -> None:
    """x_{t+1} = x_t + 0 · f(x_t): the network without its blocks. A gate anywhere but on the
    branch, or on the shortcut too, would not give that."""
    family = next(family for family in FAMILIES if family.model == name)
    model = build(family)
    gated, _ = insert(model, "se", example=images(), start="identity")
    for _, attachment in attachments(gated):
        attachment.scale.zero_()
    removed = 0
    bare = copy.deepcopy(model)
    for module in list(bare.modules()):
        for child_name, child in list(module.named_children()):
            if type(child).__name__ in BLOCKS:
                setattr(module, child_name, Passing())
                removed += 1
    assert removed > 0
    with torch.no_grad():
        torch.testing.assert_close(gated(images()), bare(images()), rtol=0, atol=0)
        assert not torch.equal(gated(images()), model(images()))


class Passing(nn.Module):
    """In a block's place; some blocks take more than the state."""

    def forward(self, x: Tensor, *_: Any) -> Tensor:
        return x


@pytest.mark.parametrize("name", ["densenet121", "repvgg_a0", "lcnet_050"])
def test_networks_without_steps_are_refused(name: str) -> None:
    model = build(Family(name, []))
    with pytest.raises(StepsNotFoundError, match="has no residual step"):
        steps(model, images())
    with pytest.raises(StepsNotFoundError, match="To name sites by hand"):
        insert(model, "se", example=images())


def test_a_shared_owner_is_refused_by_name_and_the_rest_works() -> None:
    # CoaT calls one position encoding per stage twice: 8 of its 24 steps are made there.
    model = build(Family("coat_lite_tiny", [], options=small()))
    assert len(steps(model, images())) == 24
    with pytest.raises(SiteError, match="No gate can act at 8 of 24 sites") as caught:
        insert(model, "se", example=images())
    assert "cpe1" in str(caught.value)
    gated, _ = insert(model, "se", where=lambda site: not site.refusal, example=images())
    assert len(list(attachments(gated))) == 16
