"""Parameter counts, to the integer, and what every network has in common."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from attnlab.networks.backbones import BACKBONES, build_backbone

# As counted from the networks behind the papers' tables (10 classes, 100 classes).
COUNTS = {
    "resnet56": (855_770, 861_620),
    "resnet83": (869_530, 892_660),
    "resnet164": (1_704_154, 1_727_284),
    "resnet245": (2_538_778, 2_561_908),
    "resnet56_acnet": (1_429_434, 1_435_284),
    "resnet83_acnet": (1_164_218, 1_187_348),
    "resnet164_acnet": (2_293_178, 2_316_308),
    "vgg19_bn": (38_958_922, 39_327_652),
    "mobilenet_v1": (3_223_178, 3_315_428),
    "shufflenet_v2": (1_268_646, 1_360_896),
    "repvgg_a0": (7_840_874, 7_956_164),
}
CLASSES = (10, 100)


def parameters(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def basic_resnet_count(depth: int, classes: int, projection: bool) -> int:
    """Closed form: weights of every convolution, two per channel of every norm, the classifier."""
    n = (depth - 2) // 6
    widths = (16, 32, 64)
    total = 3 * 9 * 16 + 2 * 16 + 64 * classes + classes
    before = 16
    for width in widths:
        total += 9 * before * width + (2 * n - 1) * 9 * width * width + 2 * n * 2 * width
        if projection and before != width:
            total += before * width + 2 * width
        before = width
    return total


@pytest.mark.parametrize("name", COUNTS)
def test_counts_of_the_papers(name: str) -> None:
    with torch.device("meta"):
        assert tuple(parameters(build_backbone(name, c)) for c in CLASSES) == COUNTS[name]


@pytest.mark.parametrize("depth", [20, 32, 44, 56, 110])
@pytest.mark.parametrize("classes", CLASSES)
@pytest.mark.parametrize("shortcut", ["projection", "zero_pad"])
def test_basic_counts(depth: int, classes: int, shortcut: str) -> None:
    with torch.device("meta"):
        network = build_backbone(f"resnet{depth}", classes, shortcut=shortcut)
    assert parameters(network) == basic_resnet_count(depth, classes, shortcut == "projection")


def test_he_et_als_counts() -> None:
    # Table 6 of He et al.: 0.27, 0.46, 0.66, 0.85 and 1.7 million, with option A.
    with torch.device("meta"):
        counts = [
            parameters(build_backbone(f"resnet{d}", shortcut="zero_pad"))
            for d in (20, 32, 44, 56, 110)
        ]
    assert [f"{c / 1e6:.2f}" for c in counts] == ["0.27", "0.46", "0.66", "0.85", "1.73"]


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("repvgg_a0", (7_041_194, 7_156_484)),
        # The plain network, with one bias in place of the two vectors of each fused norm.
        ("resnet56_acnet", tuple(c - 19 * 16 - 18 * 32 - 18 * 64 for c in COUNTS["resnet56"])),
        ("resnet83_acnet", tuple(c - 10 * 16 - 9 * 32 - 9 * 64 for c in COUNTS["resnet83"])),
        ("resnet164_acnet", tuple(c - 19 * 16 - 18 * 32 - 18 * 64 for c in COUNTS["resnet164"])),
    ],
)
def test_deployed_counts(name: str, counts: tuple[int, ...]) -> None:
    with torch.device("meta"):
        assert tuple(parameters(build_backbone(name, c, deploy=True)) for c in CLASSES) == counts


OF_IMAGES = [
    name
    for name, info in BACKBONES.items()
    if info.classifies and not info.of_pixels and name != "decoder"  # which reads tokens
]


@pytest.mark.parametrize("name", OF_IMAGES)
def test_output_shape(name: str) -> None:
    with torch.device("meta"), torch.no_grad():
        network = build_backbone(name, 7).eval()
        assert network.input_size == (3, 32, 32)
        for size in ((32, 32), (96, 96), (45, 37)):
            assert network(torch.empty(2, 3, *size)).shape == (2, 7)


ONE_OF_EACH = (
    "resnet20",
    "resnet83",
    "resnet56_acnet",
    "mobilenet_v1",
    "shufflenet_v2",
    "repvgg_a0",
)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_digits_images(name: str) -> None:
    network = build_backbone(name, in_channels=1)
    assert network(torch.randn(2, 1, 8, 8)).shape == (2, 10)
    assert network.input_size == (1, 32, 32)


@pytest.mark.parametrize("name", [*ONE_OF_EACH, "vgg19_bn"])
def test_gradient_reaches_every_parameter(name: str) -> None:
    torch.manual_seed(0)
    network = build_backbone(name)
    network(torch.randn(4, 3, 33, 32)).square().sum().backward()
    without = [k for k, p in network.named_parameters() if p.grad is None or not p.grad.any()]
    assert without == []


def test_every_name_has_a_title_and_a_paper() -> None:
    for name, info in BACKBONES.items():
        assert info.name == name
        assert info.title
        assert info.paper
