"""Gated networks under transforms of torch that ask more of a gate than a forward: vmap and
quantisation after training; and operators on the meta device."""

from __future__ import annotations

import warnings
from collections import Counter

import pytest
import timm
import torch
from tests.surgery.insertion.networks import Plain, SlotBlock
from torch import nn

import attnlab
from attnlab import evolution
from attnlab.gates.registry import GATES
from attnlab.surgery.insertion import attachments

IMAGES = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


# torch itself says that some operations have no rule of their own for vmap.
@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("gate", sorted(GATES))
def test_every_gate_runs_under_vmap(gate):
    torch.manual_seed(0)
    network, _ = attnlab.insert(Plain(SlotBlock).eval(), gate, example=IMAGES)
    with torch.no_grad():
        expected = torch.cat([network(image[None]) for image in IMAGES])
        mapped = torch.vmap(lambda image: network(image[None])[0])(IMAGES)
    torch.testing.assert_close(mapped, expected)


def quantised(network: nn.Module, images: torch.Tensor) -> nn.Module:
    from torch.ao.quantization import get_default_qconfig_mapping
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, on its deprecations
        prepared = prepare_fx(network, get_default_qconfig_mapping("fbgemm"), (images,))
        prepared(images)
        return convert_fx(prepared)


@pytest.mark.filterwarnings("ignore:All inputs of this cat operator")
@pytest.mark.parametrize("gate", ["se", "asr:se", "cbam", "step"])
def test_a_gated_vision_transformer_is_quantised_as_well_as_the_plain_one(gate):
    images = torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(0)
    plain = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=2, num_classes=3).eval()
    options = {"activation": "sigmoid"} if gate == "asr:se" else {}
    network, _ = attnlab.insert(plain, gate, example=images, **options)
    calls: Counter[int] = Counter()
    with torch.no_grad():
        plain_error, gated_error = (
            ((quantised(each, images)(images) - each(images)).norm() / each(images).norm()).item()
            for each in (plain, network)
        )
        converted = quantised(network, images)
        gates = [attachment.gate_module for _, attachment in attachments(converted)]
        for each in gates:
            each.register_forward_hook(lambda module, *_: calls.update([id(module)]))
        converted(images)
    # The error of quantisation itself is that of a random network, and large.
    assert gated_error < 2 * plain_error
    assert len(gates) == 4
    assert [calls[id(each)] for each in gates] == [1] * 4


def test_operators_on_the_meta_device():
    with torch.device("meta"):
        layers = [
            evolution.Involution2d(16, 3),
            evolution.DynamicConv2d(16, 16, 3, padding=1),
            evolution.LocalAttention2d(16, 16, 3),
        ]
        for layer in layers:
            assert layer(torch.randn(2, 16, 8, 8)).shape == (2, 16, 8, 8)
