"""The constants that networks scale their branches by: LayerScale, ReZero, residual multipliers."""

from __future__ import annotations

import math

import pytest
import timm
import torch
from torch import Tensor, nn

import attnlab
from attnlab._errors import FoldError
from attnlab.networks.checkpoint import Description

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0)).double()
TOKENS = torch.arange(18).reshape(2, 9)


def stirred(network: nn.Module) -> nn.Module:
    """The network with other weights than those it starts with, in float64."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return network.double().eval()


def answers(network: nn.Module, example: Tensor) -> Tensor:
    with torch.no_grad():
        found = network(example)
    return found if isinstance(found, Tensor) else found[0]


def assert_folds(network: nn.Module, example: Tensor, steps: int) -> nn.Module:
    """All scales go, the answers stay, and nothing is left to fold."""
    before = answers(network, example)
    folded, receipt = attnlab.fold(network, example=example)
    assert len(receipt.sites) == len(receipt.rows) == steps
    torch.testing.assert_close(answers(network, example), before, rtol=0, atol=0)
    torch.testing.assert_close(answers(folded, example), before, rtol=1e-6, atol=1e-6)
    with pytest.raises(FoldError, match="no constant of its own"):
        attnlab.fold(folded, example=example)
    return folded


@pytest.mark.parametrize(
    ("name", "options", "side", "steps"),
    [
        ("convnext_atto", {"depths": (1, 1, 1, 1)}, 32, 4),
        ("cait_xxs24_224", {"img_size": 32, "depth": 2, "depth_token_only": 1}, 32, 6),
        ("vit_small_patch14_dinov2", {"img_size": 28, "depth": 2}, 28, 4),
        (
            "beit_base_patch16_224",
            {"img_size": 32, "depth": 1, "embed_dim": 24, "num_heads": 2},
            32,
            2,
        ),
        ("nf_resnet26", {}, 32, 8),
    ],
)
def test_scales_of_timm_fold(name, options, side, steps) -> None:
    network = stirred(timm.create_model(name, num_classes=5, **options))
    assert_folds(network, IMAGES[:, :, :side, :side], steps)


def test_the_layer_before_is_multiplied_by_layer_scale() -> None:
    network = stirred(timm.create_model("vit_small_patch14_dinov2", img_size=28, depth=1))
    block = network.blocks[0]
    gamma, projection = block.ls1.gamma.detach().clone(), block.attn.proj
    weight, bias = (p.detach().clone() for p in (projection.weight, projection.bias))
    folded, receipt = attnlab.fold(network, example=IMAGES[:, :, :28, :28])
    found = folded.blocks[0]
    torch.testing.assert_close(found.attn.proj.weight, gamma[:, None] * weight)
    torch.testing.assert_close(found.attn.proj.bias, gamma * bias)
    assert isinstance(found.ls1, nn.Identity)
    assert receipt.removed == ("blocks.0.ls1", "blocks.0.ls2")
    assert set(network.state_dict()) - set(folded.state_dict()) == {
        "blocks.0.ls1.gamma",
        "blocks.0.ls2.gamma",
    }


def test_a_folded_network_is_read_back(tmp_path) -> None:
    options = {"img_size": 28, "depth": 1}
    network = attnlab.create("timm:vit_small_patch14_dinov2", **options).eval()
    with torch.no_grad():
        network.blocks[0].ls1.gamma.uniform_(0.5, 2)
    folded, receipt = attnlab.fold(network)
    described = Description("timm:vit_small_patch14_dinov2", model_options=options)
    description = described.after_fold(folded, receipt)
    attnlab.save(folded, tmp_path / "net.safetensors", description)
    again = attnlab.load(tmp_path / "net.safetensors")
    example = IMAGES[:, :, :28, :28].float()
    torch.testing.assert_close(answers(again, example), answers(folded, example), rtol=0, atol=0)


SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
}


def language_model(name: str) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    more = {"residual_multiplier": 0.22}
    if name == "MiniCPM3":
        heads = {"qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 16}
        more = {"scale_depth": 1.4, "q_lora_rank": 16, "kv_lora_rank": 16, **heads}
    config = getattr(transformers, f"{name}Config")(**SMALL, **more)
    return stirred(getattr(transformers, f"{name}Model")(config))


@pytest.mark.parametrize("name", ["Granite", "MiniCPM3"])
def test_residual_multipliers_fold_and_stay_away(name, tmp_path) -> None:
    network = language_model(name)
    multiplier = 0.22 if name == "Granite" else 1.4 / math.sqrt(2)
    weight = network.layers[1].mlp.down_proj.weight.detach().clone()
    folded = assert_folds(network, TOKENS, 4)
    found = folded.layers[1].mlp.down_proj.weight
    torch.testing.assert_close(found.detach(), multiplier * weight)
    # What reads the folder builds the layers from its configuration, with a multiplier of 1.
    folded.save_pretrained(tmp_path)
    again = type(folded).from_pretrained(tmp_path, dtype=torch.float64).eval()
    torch.testing.assert_close(answers(again, TOKENS), answers(folded, TOKENS))


@pytest.mark.parametrize("name", ["Dinov2", "Beit", "ConvNext"])
def test_scales_of_hugging_face_become_one_and_keep_their_keys(name, tmp_path) -> None:
    transformers = pytest.importorskip("transformers")
    if name == "ConvNext":
        options = {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1], "image_size": 32}
    else:
        options = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
        options |= {"image_size": 32, "patch_size": 8, "intermediate_size": 64}
    config = getattr(transformers, f"{name}Config")(**options)
    network = stirred(getattr(transformers, f"{name}Model")(config))
    folded = assert_folds(network, IMAGES, 4)
    assert set(folded.state_dict()) == set(network.state_dict())
    folded.save_pretrained(tmp_path)
    again = type(folded).from_pretrained(tmp_path, dtype=torch.float64).eval()
    torch.testing.assert_close(answers(again, IMAGES), answers(folded, IMAGES))


class Scaled(nn.Module):
    """Two steps that one number scales, after a layer that takes it or what cannot."""

    def __init__(self, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second, self.by = nn.Linear(6, 6), second, 0.3

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.first(x) * self.by
        return x + self.second(x) * self.by


def test_one_number_of_two_steps_folds_at_both_or_stays() -> None:
    example = torch.randn(3, 6).double()
    folded = assert_folds(stirred(Scaled(nn.Linear(6, 6))), example, 2)
    assert folded.by == 1.0
    network = stirred(Scaled(nn.Tanh()))
    with pytest.raises(FoldError) as refused:
        attnlab.fold(network, example=example)
    assert "by at 1.0:1: tanh in 'second' does not let a scaling" in str(refused.value)
    assert "by at 1.0: another step that it scales stays: tanh" in str(refused.value)
    assert str(refused.value).endswith("The network keeps them.")
    assert network.by == 0.3


class NumberOfConfig(Scaled):
    def __init__(self) -> None:
        super().__init__(nn.Linear(6, 6))
        self.config = object()


def test_a_number_that_would_come_back_is_refused() -> None:
    with pytest.raises(
        FoldError, match="comes from the network's configuration, which has no 'by'"
    ):
        attnlab.fold(stirred(NumberOfConfig()), example=torch.randn(3, 6).double())


def test_inserted_gates_go_first_and_the_scales_of_the_network_stay() -> None:
    network = timm.create_model("vit_small_patch14_dinov2", img_size=28, depth=1).eval()
    example = IMAGES[:, :, :28, :28].float()
    gated, _ = attnlab.insert(network, "asr:se", example=example)
    folded, receipt = attnlab.fold(gated, example=example)
    assert receipt.removed == ()
    assert "blocks.0.ls1.gamma" in folded.state_dict()
    assert attnlab.fold(folded, example=example)[1].removed == ("blocks.0.ls1", "blocks.0.ls2")
