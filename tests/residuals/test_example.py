"""The input that is made up for a network that says of itself which it takes."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import attnlab
from attnlab.residuals.example import evaluating, example_input, measure


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


class Multiplies(nn.Module):
    """Layers with one formula each for what they multiply."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(4, 8, 3, padding=1, groups=2)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.linear = nn.Linear(4, 6)

    def forward(self, images):
        tokens = self.linear(self.up(self.wide(images)).flatten(2).transpose(1, 2))
        attended = nn.functional.scaled_dot_product_attention(tokens, tokens, tokens)
        return torch.bmm(attended, attended.transpose(1, 2))


def test_multiply_accumulates_are_half_of_torchs_operations():
    model = Multiplies().eval()
    for size in (4, 8, 4):  # what a formula says of the same shapes is kept
        images = torch.randn(2, 4, size, size)
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            model(images)
        assert measure(model, images)[1] == counter.get_total_flops() // 2


class Told(nn.Module):
    """Notes which modes it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.modes = []

    def train(self, mode=True):
        self.modes.append(mode)
        return super().train(mode)


def test_a_network_in_eval_mode_is_not_told_again():
    model = nn.Sequential(Told(), nn.Dropout()).eval()
    model[0].modes.clear()
    with evaluating(model):
        assert not model[1].training
    assert model[0].modes == []
    model[1].train()
    with evaluating(model):
        assert model[0].modes == [False]
        assert not model[1].training
    assert model[1].training
    assert not model[0].training
