"""Whole-network parameter counts, to the integer, as the papers' tables print them."""

from functools import cache

import pytest
import torch

import attnlab
from attnlab.surgery.receipt import count_parameters


@cache
def on_meta(name, num_classes=None):
    """Counting needs no values, so the networks are built without any."""
    with torch.device("meta"):
        return attnlab.create(name, num_classes=num_classes)


# (gate, ResNet164 with 10 and 100 classes, ResNet83 with 10 and 100 classes)
COUNTS = [
    ("se", (1_906_258, 1_929_388), (970_582, 993_712)),
    ("cbam", (1_902_982, 1_926_112), (968_944, 992_074)),
    ("eca", (1_704_388, 1_727_518), (869_647, 892_777)),
    ("sem", (1_946_974, 1_970_104), (990_940, 1_014_070)),
    ("srm", (1_736_410, 1_759_540), (885_658, 908_788)),
    ("fca", (1_906_258, 1_929_388), (970_582, 993_712)),
    ("ie", (1_720_282, 1_743_412), (877_594, 900_724)),
    ("iebn", (1_728_378, 1_751_508), (881_658, 904_788)),
    ("spa", (3_833_050, 3_856_180), (1_933_978, 1_957_108)),
    ("dia", (1_923_002, 1_946_132), (1_088_378, 1_111_508)),
    ("step", (1_749_850, 1_772_980), (891_034, 914_164)),
    ("asr:se", (1_914_322, 1_937_452), None),
    ("asr:ie", (1_728_346, 1_751_476), None),
    ("asr:srm", (1_744_474, 1_767_604), None),
    ("asr:spa", (3_841_114, 3_864_244), None),
    ("asr:eca", (1_712_452, 1_735_582), None),
]


CASES = [
    pytest.param(backbone, gate, expected, id=f"{backbone}-{gate}")
    for gate, large, small in COUNTS
    for backbone, expected in (("resnet164", large), ("resnet83", small))
    if expected is not None
]


@pytest.mark.parametrize(("backbone", "gate", "expected"), CASES)
def test_whole_network_counts(backbone, gate, expected):
    ten = on_meta(backbone, 10)
    network, receipt = attnlab.insert(ten, gate)
    assert count_parameters(network) == expected[0]
    assert receipt.parameters_after == expected[0]
    # The gates do not depend on the classes: 100 classes add 90 rows of 256 weights and a bias.
    hundred = count_parameters(on_meta(backbone, 100))
    assert hundred + receipt.parameters_added == expected[1]


def test_sge_on_resnet164():
    network, _ = attnlab.insert(on_meta("resnet164", 10), "sge")
    assert count_parameters(network) == 1_711_066


def test_step_on_every_block_is_what_the_paper_cannot_have_counted():
    network, receipt = attnlab.insert(on_meta("resnet164", 100), "step", include_first=True)
    assert len(receipt.sites) == 54
    assert count_parameters(network) == 1_775_668


@pytest.mark.parametrize(
    ("name", "expected"),
    [("resnet34", 21_814_952), ("resnet50", 25_624_616), ("resnet101", 44_721_192)],
)
def test_step_on_imagenet_resnets(name, expected):
    network, _ = attnlab.insert(on_meta(f"torchvision:{name}"), "step")
    assert count_parameters(network) == expected


def test_step_with_one_input():
    network, _ = attnlab.insert(on_meta("resnet164", 10), "step", inputs="difference")
    assert count_parameters(network) == 1_742_234


def test_asr_on_vit():
    small = on_meta("timm:vit_small_patch16_224")
    _, receipt = attnlab.insert(small, "asr:se")
    assert receipt.parameters_before == 22_050_664
    assert receipt.parameters_added == 461_376
