"""Where on its branch a constant gate acts: after the norm, if an activation follows that."""

from __future__ import annotations

import copy

import pytest
import timm
import torch
from tests.surgery.folding.networks import relative, stir, stir_gates
from tests.surgery.insertion.blocks import Bottleneck, OneBlock, Yolo
from tests.surgery.insertion.networks import FunctionalBlock, Plain, SlotBlock
from torch import nn
from torch.nn import functional

import attnlab
from attnlab._errors import FoldError, OptionError, SiteError, UnknownNameError
from attnlab.gates import LearnedVectorGate
from attnlab.surgery.insertion import attachments

IMAGES = torch.randn(2, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
NORMS = ("model.0.m.0.cv2.bn", "model.0.m.1.cv2.bn", "model.1.cv2.bn")
ENDS = ("model.0.m.0.cv2", "model.0.m.1.cv2", "model.1.cv2")


def yolo() -> nn.Module:
    torch.manual_seed(0)
    return stir(Yolo()).eval().double()


def bottleneck(block: Bottleneck, x: torch.Tensor, gate: torch.Tensor | None, place: str):
    """The formula of the block, written out."""
    y = block.cv2.bn(block.cv2.conv(block.cv1(x)))
    if gate is None or not block.add:
        return functional.silu(y) + (x if block.add else 0)
    gate = gate[None, :, None, None]
    return x + (functional.silu(y * gate) if place == "norm" else functional.silu(y) * gate)


@pytest.mark.parametrize(("place", "sites"), [("auto", NORMS), ("norm", NORMS), ("branch", ENDS)])
def test_the_formula(place, sites):
    network = yolo()
    gated, receipt = attnlab.insert(network, "asr:se", place=place)
    stir_gates(gated)
    assert receipt.sites == sites
    gates = [attachment.gate.constant() for _, attachment in attachments(gated)]
    at = "branch" if place == "branch" else "norm"
    with torch.no_grad():
        c2f, *others = network.model
        y = list(c2f.cv1(network.stem(IMAGES)).chunk(2, 1))
        for block, gate in zip(c2f.m, gates[:2], strict=True):
            y.append(bottleneck(block, y[-1], gate, at))
        x = c2f.cv2(torch.cat(y, 1))
        for block, gate in zip(others, (gates[2], None), strict=True):
            x = bottleneck(block, x, gate, at)
        assert relative(network.detect(x), gated(IMAGES)) <= 1e-12


def test_the_receipt_says_which():
    _, receipt = attnlab.insert(yolo(), "asr:se")
    assert receipt.notes == (
        "3 of 3 gates act after the norm that their branch ends in, before its activation "
        "(place='norm'), where they fold; place='branch' puts them after the activation",
    )
    _, receipt = attnlab.insert(yolo(), "asr:se", place="branch")
    assert receipt.notes == (
        "3 of 3 gates act after the activation that ends their branch (place='branch'); "
        "place='norm' puts them after the norm before it, where they fold",
    )
    assert attnlab.insert(yolo(), "se")[1].notes == ()
    assert attnlab.insert(attnlab.create("resnet20"), "asr:se")[1].notes == ()


def test_every_step_folds():
    gated, _ = attnlab.insert(yolo(), "asr:se")
    stir_gates(gated)
    folded, receipt = attnlab.fold(gated)
    assert [row.into for row in receipt.rows] == [(f"{n}.weight", f"{n}.bias") for n in NORMS]
    assert list(folded.state_dict()) == list(yolo().state_dict())
    with torch.no_grad():
        assert relative(gated(IMAGES), folded(IMAGES)) <= 1e-12
        gated.train(), folded.train()
        assert relative(gated(IMAGES), folded(IMAGES)) <= 1e-12
    at_ends, _ = attnlab.insert(yolo(), "asr:se", place="branch")
    with pytest.raises(FoldError) as raised:
        attnlab.fold(at_ends)
    assert str(raised.value).endswith(
        "None of them folds where it is. Put them after layers that can take them when you insert "
        "(where=[names of norms or convolutions], for asr also place='norm'), and train again."
    )


def test_weights_of_one_place_do_not_load_into_another():
    at_norms, _ = attnlab.insert(yolo(), "asr:se")
    at_ends, _ = attnlab.insert(yolo(), "asr:se", place="branch")
    with pytest.raises(RuntimeError, match="Unexpected key"):
        at_norms.load_state_dict(at_ends.state_dict())


def test_naming_the_norms_is_the_same_network():
    """What a description can hold of a choice by a predicate: where=list(receipt.sites)."""
    gated, receipt = attnlab.insert(yolo(), "asr:se")
    named, _ = attnlab.insert(yolo(), "asr:se", where=list(receipt.sites))
    named.load_state_dict(stir_gates(gated).state_dict())
    with torch.no_grad():
        assert torch.equal(named(IMAGES), gated(IMAGES))


def test_the_site_knows_its_step():
    gated, _ = attnlab.insert(yolo(), "asr:se")
    sites = [attachment.site for _, attachment in attachments(gated)]
    assert [site.position for site in sites] == ["inside"] * 3
    assert [site.label for site in sites] == [site.step.label for site in sites]
    assert {site.kind for site in sites} == {"identity"}
    _, receipt = attnlab.insert(yolo(), "asr:se", where=lambda s: s.module == NORMS[1])
    assert receipt.sites == NORMS[1:2]
    _, receipt = attnlab.insert(yolo(), "asr:se", where="blocks:0")
    assert receipt.sites == NORMS[:1]


def test_identity_start_leaves_the_output():
    network = yolo()
    gated, receipt = attnlab.insert(network, "asr:se", start="identity")
    assert receipt.relative_change <= 1e-6
    with torch.no_grad():
        assert relative(network(IMAGES), gated(IMAGES)) <= 1e-6


def test_other_gates_move_only_when_told():
    assert attnlab.insert(yolo(), "se")[1].sites == ENDS
    assert attnlab.insert(yolo(), "se", place="norm")[1].sites == NORMS
    assert attnlab.insert(yolo(), "dia", place="norm")[1].sites == NORMS


def test_a_class_whose_gate_is_constant():
    class Own(LearnedVectorGate):
        pass

    assert attnlab.insert(yolo(), Own)[1].sites == NORMS


def test_gates_stay_in_the_order_that_was_asked_for():
    gated, receipt = attnlab.insert(yolo(), "asr:se+se")
    assert receipt.sites == NORMS + ENDS
    assert attnlab.insert(yolo(), "se+asr:se")[1].sites == ENDS
    assert attnlab.insert(attnlab.insert(yolo(), "se")[0], "asr:se")[1].sites == ENDS
    # A second constant gate goes after the first, and both fold.
    gated, receipt = attnlab.insert(attnlab.insert(yolo(), "asr:se")[0], "asr:se")
    assert receipt.sites == NORMS
    folded, receipt = attnlab.fold(stir_gates(gated))
    assert receipt.action == "folded 6 gates of Yolo"
    with torch.no_grad():
        assert relative(gated(IMAGES), folded(IMAGES)) <= 1e-12


def test_relu_is_an_activation_too():
    gated, receipt = attnlab.insert(Plain(SlotBlock), "asr:se", activation="tanh")
    assert receipt.sites == tuple(f"blocks.{n}.branch.1" for n in range(3))
    folded, _ = attnlab.fold(stir_gates(gated))  # with negative gates as well
    assert not list(attachments(folded))


def residual(branch: nn.Module) -> nn.Module:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.branch = branch

        def forward(self, x):
            return x + self.branch(x)

    return OneBlock(Residual())


class Silu(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)


BRANCHES = {
    "norm": (nn.Sequential(nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8)), "branch"),
    "no norm": (nn.Sequential(nn.Conv2d(8, 8, 1), nn.SiLU()), "branch"),
    "softmax": (nn.Sequential(nn.BatchNorm2d(8), nn.Softmax(1)), "branch"),
    "norm, conv": (nn.Sequential(nn.BatchNorm2d(8), nn.SiLU(), nn.Conv2d(8, 8, 1)), "branch"),
    "dropout": (nn.Sequential(nn.BatchNorm2d(8), nn.Hardswish(), nn.Dropout(0.1)), "branch.0"),
    "group norm": (nn.Sequential(nn.GroupNorm(2, 8), nn.GELU()), "branch.0"),
    "written out": (nn.Sequential(nn.BatchNorm2d(8), Silu()), "branch.0"),
    "inside": (nn.Sequential(nn.Sequential(nn.BatchNorm2d(8)), nn.Mish()), "branch.0.0"),
    "timm": (timm.layers.ConvNormAct(8, 8, 3, act_layer=nn.SiLU), "branch.bn.drop"),
}


@pytest.mark.parametrize("kind", BRANCHES)
def test_how_branches_end(kind):
    branch, expected = BRANCHES[kind]
    network = stir(residual(copy.deepcopy(branch))).double().eval()
    gated, receipt = attnlab.insert(network, "asr:se", example=IMAGES)
    assert receipt.sites == (f"block.{expected}",)
    if expected != "branch":
        folded, _ = attnlab.fold(stir_gates(gated), example=IMAGES)
        with torch.no_grad():
            assert relative(gated(IMAGES), folded(IMAGES)) <= 1e-12


def test_efficientnet_v2_of_torchvision():
    from torchvision.models.efficientnet import FusedMBConv, FusedMBConvConfig

    config = FusedMBConvConfig(1, 3, 1, 8, 8, 1)
    network = stir(OneBlock(FusedMBConv(config, 0.1, nn.BatchNorm2d))).double().eval()
    gated, receipt = attnlab.insert(network, "asr:se")
    assert receipt.sites == ("block.block.0.1",)
    folded, receipt = attnlab.fold(stir_gates(gated))
    with torch.no_grad():
        assert relative(gated(IMAGES), folded(IMAGES)) <= 1e-12


def test_raft_without_affine_norms():
    from torchvision.models.optical_flow.raft import ResidualBlock

    network = OneBlock(ResidualBlock(8, 8, norm_layer=nn.InstanceNorm2d)).double().eval()
    gated, receipt = attnlab.insert(network, "asr:se")
    assert receipt.sites == ("block.convnormrelu2.1",)
    stir_gates(gated)
    with pytest.raises(FoldError, match="add_affine=True"):
        attnlab.fold(gated)
    folded, receipt = attnlab.fold(gated, add_affine=True)
    assert receipt.affine == ("block.convnormrelu2.1",)
    with torch.no_grad():
        assert relative(gated(IMAGES), folded(IMAGES)) <= 1e-12


def test_a_norm_that_something_else_reads_is_left():
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.bn = nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8)

        def forward(self, x):
            y = self.bn(self.conv(x))
            return x + functional.silu(y) * y.mean()

    assert attnlab.insert(OneBlock(Block()), "asr:se")[1].sites == ("block",)


@pytest.mark.parametrize(
    ("kind", "network", "gate", "options", "message"),
    [
        (
            UnknownNameError,
            yolo,
            "asr:se",
            {"place": "norms"},
            "Unknown place 'norms'. Did you mean 'norm'? Expected one of: auto, branch, norm, "
            "heads.",
        ),
        (
            OptionError,
            yolo,
            "step",
            {"place": "norm"},
            "'step' acts at the addition, where it sees both ends of the step, so place='norm' is "
            "not for it. Leave place out.",
        ),
        (
            OptionError,
            yolo,
            "iebn",
            {"place": "norm"},
            "'iebn' acts inside norms, so place='norm' is not for it. Leave place out.",
        ),
        (
            OptionError,
            yolo,
            "se",
            {"place": "norm", "where": ["model.1.cv2"]},
            "place='norm' moves gates on the branches of residual steps, and here modules are "
            "named. Leave place out: a gate acts after the module that is named.",
        ),
        (
            SiteError,
            lambda: Plain(FunctionalBlock, depth=1),
            "se",
            {"place": "norm"},
            "No gate can act at 1 of 1 sites:\n"
            "  1.0 blocks.0: place='norm': its branch does not end in a norm that a module "
            "returns.\n"
            "They are all that where=None chooses.",
        ),
    ],
)
def test_messages(kind, network, gate, options, message):
    with pytest.raises(kind) as raised:
        attnlab.insert(network(), gate, **options)
    assert str(raised.value) == message
