"""How images are prepared for networks whose library says how, against those libraries."""

from __future__ import annotations

import pytest
import timm
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torch import nn
from torchvision.models import ResNet50_Weights, ViT_B_16_Weights

from attnlab._errors import OptionError
from attnlab.networks.preprocessing import IMAGENET, Preprocessing, library_preprocessing


def test_the_pixels_of_imagenet_are_those_that_libraries_normalise_by() -> None:
    assert IMAGENET == (IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD)


def test_a_network_of_timm_without_a_share_to_crop_sees_the_whole_image() -> None:
    network = timm.create_model("resnet18")
    found = library_preprocessing("timm:resnet18", network, None)
    assert found is not None
    assert found.crop == network.pretrained_cfg["crop_pct"] == 0.95
    network.pretrained_cfg = {**network.pretrained_cfg, "crop_pct": None}
    whole = library_preprocessing("timm:resnet18", network, None)
    assert whole is not None
    assert whole.crop == 1.0


@pytest.mark.parametrize(
    "name", ["deeplabv3_resnet50", "fasterrcnn_resnet50_fpn", "raft_small", "r3d_18"]
)
def test_nothing_is_known_of_what_is_no_classifier_of_images(name: str) -> None:
    assert library_preprocessing(f"torchvision:{name}", nn.Identity(), None) is None


def test_images_are_prepared_as_torchvision_does() -> None:
    transform = ResNet50_Weights.IMAGENET1K_V2.transforms()
    found = library_preprocessing("torchvision:resnet50", nn.Identity(), "IMAGENET1K_V2")
    assert found is not None
    assert found.size == (3, *2 * transform.crop_size)
    assert (list(found.mean), list(found.std)) == (transform.mean, transform.std)
    assert found.crop == transform.crop_size[0] / transform.resize_size[0] == 224 / 232


@pytest.mark.parametrize("crop", [0.0, -0.5, 1.001, float("nan")])
def test_a_crop_is_a_share(crop: float) -> None:
    with pytest.raises(OptionError) as error:
        Preprocessing((1, 8, 8), (0.5,), (0.5,), crop)
    assert str(error.value) == f"Expected crop to be above 0 and at most 1 but got {crop}."


@pytest.mark.parametrize(
    ("size", "crop", "side"),
    [((224, 224), 0.875, 256), ((224, 224), 224 / 232, 232), ((8, 20), 1.0, 20), ((9, 7), 0.8, 11)],
)
def test_the_short_side_is_rounded_down(size: tuple[int, int], crop: float, side: int) -> None:
    assert Preprocessing((1, *size), (0.5,), (0.5,), crop).short_side == side


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mean": (0.5,)}, "Expected 2 values as mean, one per channel, but got 1."),
        ({"std": (1.0,) * 3}, "Expected 2 values as std, one per channel, but got 3."),
        (
            {"mean": (0.5, 1.01)},
            "Expected mean to be from 0 to 1, for pixels from 0 to 1, but got [0.5, 1.01].",
        ),
        (
            {"mean": (-0.01, 0.5)},
            "Expected mean to be from 0 to 1, for pixels from 0 to 1, but got [-0.01, 0.5].",
        ),
        (
            {"mean": (float("nan"), 0.5)},
            "Expected mean to be from 0 to 1, for pixels from 0 to 1, but got [nan, 0.5].",
        ),
        (
            {"std": (1.0, 0.0)},
            "Expected std to be finite and above 0, for pixels from 0 to 1, but got [1.0, 0.0].",
        ),
        (
            {"std": (float("inf"), 1.0)},
            "Expected std to be finite and above 0, for pixels from 0 to 1, but got [inf, 1.0].",
        ),
    ],
)
def test_means_and_deviations_that_no_pixels_have(
    given: dict[str, tuple[float, ...]], message: str
) -> None:
    with pytest.raises(OptionError) as error:
        Preprocessing((2, 8, 8), **{"mean": (0.5, 0.5), "std": (1.0, 1.0), **given})
    assert str(error.value) == message


def test_means_of_black_and_of_white_and_what_it_says() -> None:
    found = Preprocessing((2, 8, 6), (0.0, 1.0), (1 / 255, 3.0))
    assert str(found) == "8×6 pixels, mean 0, 1, standard deviation 0.003922, 3"
    assert (found.crop, found.interpolation) == (1.0, "bilinear")


def test_networks_of_timm_say_it_themselves() -> None:
    network = timm.create_model("resnet18")
    known = network.pretrained_cfg
    found = library_preprocessing("timm:resnet18", network, None)
    assert found is not None
    assert (found.size, found.interpolation) == (known["input_size"], known["interpolation"])
    assert (found.mean, found.std) == (known["mean"], known["std"])
    for interpolation, expected in (
        ("bicubic", "bicubic"),
        ("bilinear", "bilinear"),
        (None, "bilinear"),
    ):
        network.pretrained_cfg = {**known, "interpolation": interpolation}
        found = library_preprocessing("timm:resnet18", network, None)
        assert found is not None
        assert found.interpolation == expected
    for nothing in (None, {}, {**known, "mean": None}, {**known, "mean": (0.5,)}):
        network.pretrained_cfg = nothing
        assert library_preprocessing("timm:resnet18", network, None) is None
    assert library_preprocessing("resnet18", timm.create_model("resnet18"), None) is None


def test_of_several_published_weights_the_first_is_taken_unless_one_is_named() -> None:
    first, named = (
        library_preprocessing("torchvision:vit_b_16", nn.Identity(), weights)
        for weights in (None, "IMAGENET1K_SWAG_E2E_V1")
    )
    assert first is not None
    assert named is not None
    transforms = ViT_B_16_Weights.IMAGENET1K_V1.transforms()
    assert first.size == (3, *2 * transforms.crop_size) == (3, 224, 224)
    assert first.interpolation == transforms.interpolation.value == "bilinear"
    transforms = ViT_B_16_Weights.IMAGENET1K_SWAG_E2E_V1.transforms()
    assert named.size == (3, *2 * transforms.crop_size) == (3, 384, 384)
    assert named.interpolation == transforms.interpolation.value == "bicubic"
    other = library_preprocessing("torchvision:vit_b_16", nn.Identity(), "mine.pth")
    assert other == first
