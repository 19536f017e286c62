"""Transformers of Hugging Face that were refused as a whole: VitDet, LwDetr, Siglip2."""

from __future__ import annotations

import pytest
import torch
import transformers
from tests.surgery.insertion.networks import awake
from torch import Tensor, nn

import attnlab
from attnlab.surgery.insertion import attachments

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
PATCHES = {"image_size": 32, "pretrain_image_size": 32, "patch_size": 8}


def vitdet() -> nn.Module:
    torch.manual_seed(0)
    blocks = {"window_block_indices": [0], "residual_block_indices": [1], "window_size": 2}
    config = transformers.VitDetConfig(**SMALL, **PATCHES, **blocks)
    return transformers.VitDetModel(config).eval()


def lw_detr() -> nn.Module:
    torch.manual_seed(0)
    windows = {"num_windows": 4, "window_block_indices": [0], "out_indices": [1, 2]}
    backbone = transformers.LwDetrViTConfig(**SMALL, **PATCHES, **windows)
    config = transformers.LwDetrConfig(
        backbone_config=backbone,
        d_model=16,
        c2f_num_blocks=1,
        decoder_layers=2,
        decoder_ffn_dim=32,
        decoder_self_attention_heads=2,
        decoder_cross_attention_heads=2,
        num_queries=5,
        group_detr=1,
        projector_scale_factors=[1.0],
    )
    return transformers.LwDetrModel(config).eval()


@pytest.mark.parametrize("gate", ["se", "asr:se", "step"])
@pytest.mark.parametrize("where", [None, "blocks:1", "blocks:0"])
def test_vitdet_whose_block_runs_its_children_in_a_row(gate, where):
    network, receipt = attnlab.insert(vitdet(), gate, where=where, example=IMAGES)
    assert len(receipt.sites) == {None: 5, "blocks:1": 3, "blocks:0": 2}[where]
    awake(network)(IMAGES)
    # All that is not a forward of the block sees its gates: they move and are saved.
    homes = {name.rpartition(".")[0] for name, _ in attachments(network)}
    for home in homes:
        children = network.get_submodule(home).children()
        assert any(type(child).__name__.endswith("Attachment") for child in children)
    moved = network.double()
    assert {p.dtype for p in moved.parameters()} == {torch.float64}


def test_a_gate_on_the_residual_block_of_vitdet_acts_once():
    network, _ = attnlab.insert(vitdet(), "se", where="blocks:1", example=IMAGES)
    block = awake(network).encoder.layer[1].residual
    gates = [each for name, each in attachments(network) if ".residual" in name]
    assert len(gates) == 1
    features = torch.randn(2, 16, 4, 4)
    by_hand = features
    for name in ("conv1", "norm1", "act1", "conv2", "norm2", "act2", "conv3"):
        by_hand = block.get_submodule(name)(by_hand)
    plain = type(block.norm3).forward(block.norm3, by_hand)  # without the hook of the gate
    expected = features + plain * gates[0].gate_module(plain)
    with torch.no_grad():
        torch.testing.assert_close(block(features), expected)


def test_lw_detr_takes_gates_where_no_mask_is_hidden():
    for where, sites in ((None, 10), ("blocks:0,1", 4), ("in:decoder", 6)):
        network, receipt = attnlab.insert(lw_detr(), "se", where=where, example=IMAGES)
        assert len(receipt.sites) == sites
        with torch.no_grad():
            awake(network)(IMAGES)


class Siglip(nn.Module):
    """A network around one that is told of padding, and that is not told itself."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = siglip2()

    def forward(self, given: dict[str, Tensor]) -> Tensor:
        return self.tower(**given).last_hidden_state


def siglip2() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.Siglip2VisionConfig(
        **SMALL, intermediate_size=32, num_patches=16, patch_size=4
    )
    return transformers.Siglip2VisionModel(config).double().eval()


def patches(height: int) -> dict[str, Tensor]:
    """An image of `height` rows of four patches, padded to four rows."""
    generator = torch.Generator().manual_seed(3)
    pixels = torch.randn(1, 16, 48, generator=generator, dtype=torch.double)
    pixels[:, 4 * height :] = 7.0
    return {
        "pixel_values": pixels,
        "pixel_attention_mask": (torch.arange(16)[None] < 4 * height).long(),
        "spatial_shapes": torch.tensor([[height, 4]]),
    }


@pytest.mark.parametrize("wrapped", [False, True])
def test_siglip2_leaves_padding_out(wrapped):
    network, where = (Siglip(), "in:tower.encoder") if wrapped else (siglip2(), "in:encoder")
    example = (patches(4),) if wrapped else patches(4)
    network, receipt = attnlab.insert(network, "se", where=where, example=example)
    assert len(receipt.sites) == 4
    awake(network)
    given = patches(2)
    other = {**given, "pixel_values": given["pixel_values"].clone()}
    other["pixel_values"][:, 8:] = -3.0
    with torch.no_grad():
        if wrapped:
            one, two = (network(each)[:, :8] for each in (given, other))
        else:
            one, two = (network(**each).last_hidden_state[:, :8] for each in (given, other))
    torch.testing.assert_close(one, two, rtol=0, atol=1e-12)


SIZES = {**SMALL, "intermediate_size": 32}
WORDS = {"vocab_size": 50, "bos_token_id": 0, "eos_token_id": 1, "max_position_embeddings": 16}


def siglip2_with_texts() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.Siglip2Config(
        text_config={**SIZES, **WORDS, "projection_size": SMALL["hidden_size"]},
        vision_config={**SIZES, "num_patches": 16, "patch_size": 4},
    )
    return transformers.Siglip2Model(config).double().eval()


def siglip_with_texts() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.SiglipConfig(
        text_config={**SIZES, **WORDS, "projection_size": SMALL["hidden_size"]},
        vision_config={**SIZES, "image_size": 16, "patch_size": 4},
    )
    return transformers.SiglipModel(config).double().eval()


TEXTS = torch.randint(2, 50, (2, 16), generator=torch.Generator().manual_seed(5))
LENGTH = 6
PADDED = (torch.arange(16) < torch.tensor([[16], [LENGTH]])).long()


@pytest.mark.parametrize("padded_example", [False, True])
def test_the_images_and_texts_of_a_network_are_padded_each_by_its_own_mask(padded_example):
    """There are as many patches as tokens, so that a mask of the one would fit the other."""
    images = [patches(4), patches(2)]
    both = {name: torch.cat([image[name] for image in images]) for name in images[0]}
    example = {"input_ids": TEXTS[:1], **images[1 if padded_example else 0]}
    network = awake(attnlab.insert(siglip2_with_texts(), "se", example=example)[0])
    with torch.no_grad():
        together = network(input_ids=TEXTS, attention_mask=PADDED, **both)
        whole = network(input_ids=TEXTS[:1], **images[0])
        short = network(input_ids=TEXTS[1:, :LENGTH], **cropped(images[1]))
        features = network.get_image_features(**both).last_hidden_state
        texts = network.get_text_features(TEXTS, PADDED).last_hidden_state
    seen, read = (together[f"{kind}_model_output"].last_hidden_state for kind in ("vision", "text"))
    for got in (seen, features):
        torch.testing.assert_close(got[:1], whole.vision_model_output.last_hidden_state)
        torch.testing.assert_close(got[1:, :8], short.vision_model_output.last_hidden_state)
    for got in (read, texts):
        torch.testing.assert_close(got[:1], whole.text_model_output.last_hidden_state)
        torch.testing.assert_close(got[1:, :LENGTH], short.text_model_output.last_hidden_state)


def cropped(image: dict[str, Tensor]) -> dict[str, Tensor]:
    """An image of two rows of patches without its padding."""
    pixels, mask = (image[name][:, :8] for name in ("pixel_values", "pixel_attention_mask"))
    return {**image, "pixel_values": pixels, "pixel_attention_mask": mask}


def test_images_do_not_see_the_padding_of_texts():
    """Nothing tells of padding of the images, which have as many patches as the texts tokens."""
    images = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(7)).double()
    example = {"input_ids": TEXTS[:1], "pixel_values": images[:1]}
    network = awake(attnlab.insert(siglip_with_texts(), "se", example=example)[0])
    with torch.no_grad():
        together = network(input_ids=TEXTS, attention_mask=PADDED, pixel_values=images)
        alone = network(input_ids=TEXTS[1:, :LENGTH], pixel_values=images[1:])
    got, read = (together[f"{kind}_model_output"].last_hidden_state for kind in ("vision", "text"))
    torch.testing.assert_close(got[1:], alone.vision_model_output.last_hidden_state)
    torch.testing.assert_close(read[1:, :LENGTH], alone.text_model_output.last_hidden_state)


def test_gates_in_the_images_of_a_network_that_writes():
    """Its own mask is of all tokens so far, of which it is given the last."""
    torch.manual_seed(0)
    images = transformers.SiglipVisionConfig(**SIZES, image_size=16, patch_size=4)
    texts = transformers.LlamaConfig(**SIZES, num_key_value_heads=2, vocab_size=60)
    config = transformers.LlavaConfig(
        vision_config=images,
        text_config=texts,
        image_token_index=59,
        vision_feature_select_strategy="full",
        vision_feature_layer=-1,
    )
    network = transformers.LlavaForConditionalGeneration(config).double().eval()
    ids = torch.randint(2, 50, (2, 24))
    ids[:, 1:17] = 59
    given = {"pixel_values": torch.randn(2, 3, 16, 16).double(), "input_ids": ids}
    example = {name: value[:1] for name, value in given.items()}
    gated, _ = attnlab.insert(
        network, "se", example=example, where=lambda site: "vision" in site.module
    )
    awake(gated)
    mask = (torch.arange(24) < torch.tensor([[24], [20]])).long()
    alone = {"pixel_values": given["pixel_values"][1:], "input_ids": ids[1:, :20]}
    with torch.no_grad():
        together = gated(**given, attention_mask=mask).logits
        torch.testing.assert_close(together[1:, :20], gated(**alone).logits)
        written = gated.generate(
            **given, attention_mask=torch.ones_like(ids), max_new_tokens=3, do_sample=False
        )
        for _ in range(3):  # each anew from all that was written
            last = gated(**given).logits[:, -1].argmax(-1, keepdim=True)
            given["input_ids"] = torch.cat([given["input_ids"], last], 1)
    assert torch.equal(written, given["input_ids"])
