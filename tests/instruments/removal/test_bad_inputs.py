"""Wrong input is answered word for word."""

from __future__ import annotations

import pytest
import timm
import torch
from torch import nn

import attnlab
from attnlab._errors import (
    AttnlabError,
    InputError,
    OptionError,
    SelectionError,
    ShortenError,
    StepsNotFoundError,
    UnknownNameError,
)
from attnlab.instruments.removal import removal_curves
from attnlab.instruments.removal.trial import flat_answers
from attnlab.surgery.shortening.stand_ins import stand_in_for, take_out

IMAGES = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))
PROJECTS = (
    "its shortcut projects: it changes the shape or the channels of the state, which the network "
    "needs"
)


@pytest.fixture(scope="module")
def network() -> nn.Module:
    torch.manual_seed(0)
    return attnlab.create("resnet20").eval()


CASES: list[tuple[dict, type[AttnlabError], str]] = [
    (
        {"remove": 8, "images": [IMAGES]},
        ShortenError,
        f"Expected to remove at most 7 of the 9 steps of ResNet but got 8. 2.0 (layer2.0) must "
        f"stay: {PROJECTS}. So must 3.0 (layer3.0), for the same reason.",
    ),
    (
        {"remove": ["layer2.0"]},
        ShortenError,
        f"Step 2.0 (layer2.0) cannot be removed: {PROJECTS}.",
    ),
    (
        {"remove": 1, "by": "outputs", "images": [IMAGES]},
        UnknownNameError,
        "Unknown ranking 'outputs'. Did you mean 'output'? Expected one of: output, influence, "
        "nsi, tns, loss, kl.",
    ),
    (
        {"remove": 1, "by": "loss", "images": [IMAGES]},
        InputError,
        "The ranking 'loss' needs labels, and the images have none. Expected batches that are "
        "pairs of images and classes (whole numbers), or of tokens (inputs, places) and the token "
        "that follows at each place; or a ranking without labels: by='output'.",
    ),
    (
        {"remove": 1},
        OptionError,
        "Ranking steps by 'output' needs images. Pass batches, images=loader, or name the steps to "
        "remove: remove=['layer1.2'].",
    ),
    (
        {"remove": 1, "images": []},
        InputError,
        "Expected images with at least one batch but got none.",
    ),
    (
        {"remove": 1, "images": [IMAGES], "test": []},
        InputError,
        "Expected test with at least one batch but got none.",
    ),
    (
        {"remove": 1, "images": IMAGES},
        InputError,
        "Expected images to be batches, such as a DataLoader or a list of tensors, but got one "
        "tensor of shape (2, 3, 16, 16). Pass images=[tensor].",
    ),
    (
        {"remove": 1, "images": [IMAGES[:, :1]]},
        InputError,
        "ResNet (torch.float32 on cpu) does not run on an example of shape (1, 1, 16, 16): Given "
        "groups=1, weight of size [16, 3, 3, 3], expected input[1, 1, 16, 16] to have 3 channels, "
        "but got 1 channels instead",
    ),
    (
        {"remove": 0, "images": [IMAGES]},
        OptionError,
        "Expected remove to be at least 1 but got 0.",
    ),
    (
        {"remove": True, "images": [IMAGES]},
        OptionError,
        "Expected remove to be a whole number but got True.",
    ),
    (
        {"remove": "layer1.1"},
        OptionError,
        "Expected remove to be a number of steps or a list of names but got the text 'layer1.1'. "
        "Pass ['layer1.1'].",
    ),
    (
        {"remove": []},
        OptionError,
        "Expected at least one step to remove but got an empty list.",
    ),
    (
        {"remove": ["layer1.7"]},
        SelectionError,
        "There is no residual step 'layer1.7'. Did you mean 'layer1.2' or 'layer1.1' or "
        "'layer1.0'? Expected labels or names of: 1.0 (layer1.0), 1.1 (layer1.1), 1.2 (layer1.2), "
        "2.0 (layer2.0), 2.1 (layer2.1), 2.2 (layer2.2), 3.0 (layer3.0), 3.1 (layer3.1), 3.2 "
        "(layer3.2).",
    ),
    (
        {"remove": ["layer1.1"], "by": "nsi"},
        OptionError,
        "The steps to remove are named, so there is nothing to rank by 'nsi'.",
    ),
    (
        {"remove": ["layer1.1"], "repair": True},
        OptionError,
        "repair=True needs images to estimate statistics on: images=loader.",
    ),
    (
        {"remove": ["layer1.1"], "images": [IMAGES[:1]], "repair": True},
        InputError,
        "Expected batches of at least 2 images to estimate the statistics of norms but got one of "
        "1.",
    ),
    (
        {"remove": 1, "by": "loss", "images": [(IMAGES, torch.tensor([3, 10]))]},
        InputError,
        "Expected labels from 0 to 9, one for each of the network's 10 answers, but got 3 to 10.",
    ),
    (
        {"remove": 1, "images": [(IMAGES, torch.tensor([1]))]},
        InputError,
        "Expected one label per image but got 1 labels for 2 images.",
    ),
    (
        {"remove": 1, "images": [IMAGES, (IMAGES, torch.tensor([1, 2]))]},
        InputError,
        "Expected images that all have labels, or none, but only some have.",
    ),
]


@pytest.mark.parametrize(("given", "kind", "text"), CASES)
def test_words(network: nn.Module, given: dict, kind: type[AttnlabError], text: str) -> None:
    with pytest.raises(kind) as error:
        attnlab.shorten(network, **given)
    assert str(error.value) == text


def test_images_of_another_size_than_a_transformer_takes() -> None:
    network = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1, embed_dim=24)
    with pytest.raises(InputError) as error:
        attnlab.shorten(network, 1, images=[IMAGES])
    assert str(error.value) == (
        "VisionTransformer (torch.float32 on cpu) does not run on an example of shape (1, 3, 16, "
        "16): Input height (16) doesn't match model (32)."
    )


def test_a_network_that_answers_with_zeros() -> None:
    network = attnlab.create("resnet20").eval()
    nn.init.zeros_(network.fc.weight)
    nn.init.zeros_(network.fc.bias)
    with pytest.raises(InputError) as error:
        attnlab.shorten(network, 1, images=[IMAGES])
    assert str(error.value) == (
        "The network returns zeros for 2 of 2 images, so nothing can be said about a change. Is "
        "its last layer still as it was initialised?"
    )


@pytest.mark.parametrize(
    ("output", "shapes"),
    [
        ("a text", "no numbers"),
        (torch.tensor(1.0), "()"),
        ((torch.ones(2, 3), torch.ones(3, 4)), "(2, 3), (3, 4)"),
    ],
)
def test_outputs_that_are_not_those_of_each_input(output: object, shapes: str) -> None:
    with pytest.raises(InputError) as error:
        flat_answers(output, 2)
    assert str(error.value) == (
        "Expected a network that returns numbers for each of 2 inputs along the first axis but "
        f"got {shapes}."
    )


def test_no_steps() -> None:
    with pytest.raises(StepsNotFoundError, match="has no residual step"):
        attnlab.shorten(nn.Sequential(nn.Conv2d(3, 3, 1)), 1, images=[IMAGES])


def test_a_name_without_images() -> None:
    with pytest.raises(OptionError) as error:
        attnlab.shorten("resnet20", 1)
    assert str(error.value) == (
        "Ranking steps by 'output' needs images. Pass batches, images=loader, or name the steps to "
        "remove: remove=['layer1.2']."
    )


def test_no_norms_to_repair() -> None:
    network = timm.create_model(
        "vit_tiny_patch16_224", img_size=16, depth=2, embed_dim=24, num_classes=3
    )
    with pytest.raises(InputError) as error:
        attnlab.shorten(network, ["blocks.0"], images=[IMAGES], repair=True)
    assert str(error.value) == (
        "VisionTransformer has no BatchNorm with running statistics, so there is nothing to "
        "estimate again. Leave repair out."
    )


def test_rankings_of_curves(network: nn.Module) -> None:
    with pytest.raises(UnknownNameError, match="Unknown ranking 'cosine'"):
        removal_curves(network, [IMAGES], rankings=["cosine"])


def test_words_of_stand_ins(network: nn.Module) -> None:
    with pytest.raises(OptionError) as error:
        stand_in_for("gelu")
    assert str(error.value) == (
        "Expected what takes a module's place to be relu, identity or nothing, identity:N or "
        "nothing:N for N results (identity:list, nothing:list for a list of one), or zeros:N for "
        "zeros with N channels, but got 'gelu'."
    )
    with pytest.raises(AttnlabError) as error:
        take_out(network, {"layer9.1": "identity"})
    assert str(error.value) == "ResNet has no module 'layer9.1' that could be taken out."
