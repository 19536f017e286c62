"""How images are prepared for networks whose library says how, against those libraries."""

from __future__ import annotations

import timm
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD

from attnlab.networks.preprocessing import IMAGENET, library_preprocessing


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
