"""Networks that are run by other methods than their forward: `forward_features`, `encode`."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
import timm
import torch
from torch import Tensor, nn

import attnlab
from attnlab import AttnlabError

IMAGES = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(0))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.norm(self.conv(x))


class Coder(nn.Module):
    """An encoder and a decoder, which people call one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(Block(), Block())
        self.decoder = nn.Sequential(Block(), Block())
        self.width = 4

    def encode(self, x: Tensor) -> Tensor:
        return self.encoder(x)

    def decode_all(self, codes: list[Tensor]) -> list[Tensor]:
        return [self.decoder(each) for each in codes]

    def loss_of(self, batch: dict[str, object]) -> Tensor:
        return self.encoder(batch["images"]).square().mean()

    def both(self, x: Tensor) -> Tensor:
        return self(x)

    def read(self, path: Path) -> Tensor:
        return self.encoder(torch.load(path))

    def one_by_one(self, paths: list[Path]) -> Iterator[Tensor]:
        for path in paths:
            yield self.encoder(torch.load(path))

    def renewed(self, path: Path) -> Tensor:
        self.encoder = self.kept[0]
        return self.read(path)

    def set_width(self, width: int) -> int:
        self.width = width
        return width

    @staticmethod
    def doubled(x: Tensor) -> Tensor:
        return 2 * x

    def forward(self, x: Tensor) -> Tensor:
        return self.decode_all([self.encode(x)])[0]


class Keeps(nn.Module):
    """Takes the place of a module, keeps it, and does not run it."""

    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, x: Tensor) -> Tensor:
        return x


class Runs(Keeps):
    def forward(self, x: Tensor) -> Tensor:
        return self.inside(x)


@pytest.fixture
def gated() -> nn.Module:
    torch.manual_seed(0)
    return attnlab.insert(Coder().eval(), "se", example=IMAGES)[0]


CALLS = {
    "encode": lambda network: network.encode(IMAGES),
    "decode_all": lambda network: network.decode_all([IMAGES]),
    "both": lambda network: network.both(IMAGES),
    "by keyword": lambda network: network.encode(x=IMAGES),
    "in a dictionary": lambda network: network.loss_of({"name": "a", "images": IMAGES}),
    "in a row": lambda network: network.decode_all((IMAGES,)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_a_network_that_lost_a_gate_answers_by_no_method(gated, call, part):
    call(gated)
    setattr(gated, part, copy.deepcopy(getattr(Coder(), part)))
    with pytest.raises(AttnlabError, match="would answer without the gate"):
        call(gated)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_module_that_does_not_run_its_gates_is_not_taken_for_one_that_does(gated, call):
    gated.encoder[1] = Keeps(gated.encoder[1])
    with pytest.raises(AttnlabError):
        call(gated)


def test_what_one_method_cannot_show_the_network_shows(gated):
    before = gated.encode(IMAGES)
    gated.encoder[1] = Runs(gated.encoder[1])
    for _ in range(2):
        with pytest.raises(AttnlabError) as error:
            gated.encode(IMAGES)
        assert str(error.value) == (
            "A module on the way to a gate was exchanged after insertion, and this call of "
            "Coder.encode did not show that all gates still act: the gate 'decoder.0.attnlab' and "
            "1 more did not. Call the network itself once, network(...), which shows it or says "
            "what is lost."
        )
    gated(IMAGES)
    assert torch.equal(gated.encode(IMAGES), before)


def test_norms_with_a_gate_inside_are_looked_for_as_well():
    network, _ = attnlab.insert(Coder().eval(), "iebn", example=IMAGES)
    before = network.encode(IMAGES)
    network.encoder[1] = Runs(network.encoder[1])
    with pytest.raises(AttnlabError, match=r"the gate that in 'decoder.0.norm' and 1 more did not"):
        network.encode(IMAGES)
    network(IMAGES)
    assert torch.equal(network.encode(IMAGES), before)


def test_a_method_in_which_all_gates_act_shows_it_too(gated):
    before = gated(IMAGES)
    gated.encoder[1] = Runs(gated.encoder[1])
    assert torch.equal(gated.both(IMAGES), before)
    gated.encode(IMAGES)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    torch.save(IMAGES, tmp_path / "images.pt")
    return tmp_path / "images.pt"


OF_A_FILE = {
    "of a file": lambda network, file: network.read(file),
    "of files, later": lambda network, file: next(network.one_by_one([file])),
}


@pytest.mark.parametrize("call", OF_A_FILE.values(), ids=OF_A_FILE)
@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_what_reads_its_tensors_itself_is_answered_by_no_network_that_lost_a_gate(
    gated, file, call, part
):
    assert torch.equal(call(gated, file), gated.encode(IMAGES))
    setattr(gated, part, copy.deepcopy(getattr(Coder(), part)))
    for _ in range(2):
        with pytest.raises(AttnlabError, match="would answer without the gate"):
            call(gated, file)


@pytest.mark.parametrize("call", OF_A_FILE.values(), ids=OF_A_FILE)
def test_what_reads_its_tensors_itself_has_to_show_the_gates_too(gated, file, call):
    before = gated.encode(IMAGES)
    gated.encoder[1] = Runs(gated.encoder[1])
    assert gated.set_width(5) == 5
    for _ in range(2):
        with pytest.raises(AttnlabError, match=r"the gate '[a-z0-9.]*attnlab' and \d more did not"):
            call(gated, file)
    gated(IMAGES)
    assert torch.equal(call(gated, file), before)


def test_what_counts_are_the_gates_when_a_method_runs_layers(gated, file):
    before = gated.encode(IMAGES)
    with_gates = gated.encoder
    gated.encoder = Coder().encoder
    gated.kept = [Coder().encoder]  # in a list, and so no module of the network
    with pytest.raises(AttnlabError, match="would answer without the gate"):
        gated.renewed(file)
    gated.kept = [with_gates]
    with pytest.raises(AttnlabError, match="did not show that all gates still act"):
        gated.renewed(file)
    gated(IMAGES)
    assert torch.equal(gated.renewed(file), before)


def test_what_takes_no_tensors_is_left_alone(gated):
    gated.encoder = Coder().encoder
    assert gated.set_width(5) == gated.width == 5
    assert torch.equal(gated.doubled(IMAGES), 2 * IMAGES)
    assert inspect.signature(gated.encode) == inspect.signature(Coder().encode)
    assert attnlab.remove(gated, only_lost=True) is None
    gated(IMAGES)
    gated.encode(IMAGES)


def test_taking_off_what_is_lost_forgives_no_module_that_does_not_run_its_gates(gated):
    gated.encoder[1] = Keeps(gated.encoder[1])
    attnlab.remove(gated, only_lost=True)  # that gate is still in the network
    for call in (gated, gated.encode):
        with pytest.raises(AttnlabError):
            call(IMAGES)
    attnlab.remove(gated)
    gated(IMAGES)


@pytest.mark.parametrize("method", ["forward_features", "forward_intermediates", "forward"])
def test_a_network_of_timm(method):
    network, _ = attnlab.insert(timm.create_model("resnet18").eval(), "se")
    images = torch.randn(1, 3, 32, 32)
    before = getattr(network, method)(images)
    network.layer3[1] = Runs(network.layer3[1])
    after = getattr(network, method)(images)
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    network.layer3[1] = Keeps(network.layer3[1])
    with pytest.raises(AttnlabError):
        getattr(network, method)(images)


def test_the_parts_of_clip():
    from transformers import CLIPConfig, CLIPModel

    layers = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2}
    layers["num_attention_heads"] = 2
    text = {**layers, "vocab_size": 50, "bos_token_id": 1, "eos_token_id": 2}
    vision = {**layers, "image_size": 16, "patch_size": 8}
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)
    plain, other = (CLIPModel(config).eval() for _ in range(2))
    given = {"input_ids": torch.arange(3, 11)[None], "pixel_values": torch.randn(1, 3, 16, 16)}
    network, _ = attnlab.insert(plain, "asr:se", example=given)
    network.get_image_features(pixel_values=given["pixel_values"])
    network.vision_model = other.vision_model
    with pytest.raises(AttnlabError, match="would answer without the gate"):
        network.get_image_features(pixel_values=given["pixel_values"])
