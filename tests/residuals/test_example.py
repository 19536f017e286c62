"""The input that is made up for a network that says of itself which it takes."""

import pytest
import torch
from torch import nn

import attnlab
from attnlab.residuals.example import example_input


@pytest.mark.parametrize(
    ("name", "options", "size"),
    [
        ("visformer_tiny", {}, (3, 224, 224)),  # its patch embeddings begin at 112 px
        ("visformer_tiny", {"img_size": 96}, (3, 96, 96)),
        ("vit_tiny_patch16_224", {"img_size": 64}, (3, 64, 64)),
        ("test_resnet", {}, (3, 160, 160)),
    ],
)
def test_timm(name, options, size):
    with torch.device("meta"):
        model = attnlab.create(f"timm:{name}", **options)
    assert example_input(model).shape == (1, *size)


def test_a_size_that_was_set_later_counts():
    model = attnlab.create("timm:vit_tiny_patch16_224", img_size=64)
    model.set_input_size(img_size=96)
    assert example_input(model).shape == (1, 3, 96, 96)


def test_a_declared_size_and_none():
    model = nn.Conv2d(4, 8, 1).double()
    assert example_input(model, 2).shape == (2, 3, 224, 224)
    model.input_size = (4, 8, 8)
    assert example_input(model, 2).shape == (2, 4, 8, 8)
    assert example_input(model).dtype == torch.float64
