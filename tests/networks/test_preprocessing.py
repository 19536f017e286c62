"""How images are prepared for networks whose library says how, against those libraries."""

from __future__ import annotations

import pytest
import timm
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torch import nn
from torchvision.models import ResNet50_Weights

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
