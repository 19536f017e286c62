"""A description says where on the branches gates act; without it they act at the end."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tests.surgery.folding.networks import stir, stir_gates
from tests.surgery.insertion.blocks import Yolo
from torch import nn

import attnlab
from attnlab._errors import WeightsError
from attnlab.networks.checkpoint import Description, describe
from attnlab.surgery.insertion import attachments

NAME = "tests.surgery.insertion.blocks.Yolo"
IMAGES = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def gated(place: str) -> nn.Module:
    torch.manual_seed(0)
    return stir_gates(attnlab.insert(stir(Yolo()), "asr:se", place=place)[0]).eval()


@pytest.mark.parametrize("place", ["auto", "norm", "branch"])
def test_a_network_comes_back(place: str, tmp_path: Path) -> None:
    network = gated(place)
    description = Description(NAME, gate="asr:se", place=place)
    path = attnlab.save(network, tmp_path / "w.safetensors", description)
    assert describe(path) == description
    with torch.no_grad():
        assert torch.equal(attnlab.load(path, trust=True)(IMAGES), network(IMAGES))


def test_a_description_without_a_place_means_the_end_of_the_branch(tmp_path: Path) -> None:
    network, path = gated("branch"), tmp_path / "old.safetensors"
    tensors = {name: value.clone() for name, value in network.state_dict().items()}
    save_file(tensors, path, {"attnlab": f'{{"model": "{NAME}", "gate": "asr:se"}}'})
    again = attnlab.load(path, trust=True)
    assert [attachment.site.module for _, attachment in attachments(again)] == [
        "model.0.m.0.cv2",
        "model.0.m.1.cv2",
        "model.1.cv2",
    ]
    with torch.no_grad():
        assert torch.equal(again(IMAGES), network(IMAGES))


def test_the_wrong_place_is_refused_with_the_right_one(tmp_path: Path) -> None:
    with pytest.raises(WeightsError) as raised:
        attnlab.save(gated("auto"), tmp_path / "w.safetensors", Description(NAME, gate="asr:se"))
    assert str(raised.value).endswith(
        "Its gates act after norms, where insert puts them by default: pass place='auto'."
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["auto", "norm", "branch"])
def test_nothing_is_said_of_a_place_that_is_right(place: str, tmp_path: Path) -> None:
    with pytest.raises(WeightsError) as raised:
        attnlab.save(
            gated(place), tmp_path / "w.safetensors", Description(NAME, gate="se", place=place)
        )
    assert "place" not in str(raised.value).partition(" is another network")[2]


def test_one_gate_after_a_norm_is_enough_to_say_so(tmp_path: Path) -> None:
    network, _ = attnlab.insert(stir(Yolo()), "asr:se", ["model.1.cv2"])
    network, _ = attnlab.insert(network, "asr:se", "stages:1", place="norm")
    positions = {each.site.position for _, each in attachments(network)}
    assert positions == {"inside", "end"}
    with pytest.raises(WeightsError, match="Its gates act after norms"):
        attnlab.save(network, tmp_path / "w.safetensors", Description(NAME, gate="asr:se"))


def test_after_a_fold(tmp_path: Path) -> None:
    network = gated("auto")
    plain, receipt = attnlab.fold(network)
    description = Description(NAME, gate="asr:se", place="auto").after_fold(plain, receipt)
    path = attnlab.save(plain, tmp_path / "plain.safetensors", description)
    with torch.no_grad():
        assert torch.equal(attnlab.load(path, trust=True)(IMAGES), plain(IMAGES))
