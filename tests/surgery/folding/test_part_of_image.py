"""The check in float64 takes a part of the image where that shows as much as all of it."""

from __future__ import annotations

import pytest
import torch

import attnlab
from attnlab._errors import FoldError
from attnlab.residuals.example import run_once
from attnlab.surgery.folding import _surgery
from attnlab.surgery.folding._plan import multiply
from attnlab.surgery.folding._verify import _parts


@pytest.mark.parametrize(
    ("name", "side", "part"),
    [
        ("resnet20", 32, 16),
        ("resnet20", 64, 32),
        ("resnet20", 16, None),  # maps of 16, 8 and 4 pixels a side: 2 would be left of the last
        ("resnet20", 36, None),  # the last has 9
        ("resnet20", 160, 64),
        ("vgg19_bn", 32, None),  # its last maps have 2
    ],
)
def test_the_part(name, side, part):
    images = torch.randn(2, 3, side, side)
    graph = run_once(attnlab.create(name), images).graph
    *parts, whole = _parts(images, graph)
    assert whole is images
    assert [tuple(each.shape) for each in parts] == ([] if part is None else [(2, 3, part, part)])
    assert all(torch.equal(each, images[:, :, :part, :part]) for each in parts)


@pytest.mark.parametrize("side", [32, 64])
@pytest.mark.parametrize("tap", [(0, 0), (0, 2), (1, 1), (2, 1), (2, 2)])
def test_a_fault_in_one_tap_of_a_kernel_is_seen(monkeypatch, side, tap):
    torch.manual_seed(0)
    network, _ = attnlab.insert(attnlab.create("resnet20"), "asr:se")

    def faulty(network, product, offsets):
        multiply(network, product, offsets)
        weight = network.get_parameter("layer3.2.conv2.weight")
        with torch.no_grad():
            weight[:, :, tap[0], tap[1]] *= 1.001

    images = torch.randn(1, 3, side, side)
    attnlab.fold(network, example=images)
    monkeypatch.setattr(_surgery, "multiply", faulty)
    with pytest.raises(FoldError, match="differs from the original in float64"):
        attnlab.fold(network, example=images)


@pytest.mark.parametrize("gate", ["asr:se", "asr:eca", "rezero"])
def test_the_whole_image_is_not_needed_where_the_part_is_right(gate):
    """A gate that is held does not run in the check, and that is no other path."""
    seen = []
    network, _ = attnlab.insert(attnlab.create("resnet20"), gate)
    network.conv1.register_forward_hook(
        lambda _layer, given, _output: seen.append((given[0].dtype, given[0].shape[2]))
    )
    attnlab.fold(network)
    assert [side for dtype, side in seen if dtype == torch.float64] == [16, 16]
