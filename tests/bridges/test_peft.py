"""Adapters of peft in networks with gates: before and after insertion, and when they are merged."""

from __future__ import annotations

import copy

import pytest
import torch
import transformers
from torch import Tensor, nn

import attnlab
from attnlab.residuals.adapters import inside_adapter
from attnlab.surgery.insertion import attachments

peft = pytest.importorskip("peft", reason="peft is not installed: nothing to put adapters in with")

IMAGES = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0)).double()
ADAPTERS = {
    "lora": {"target_modules": ["q_proj", "v_proj"]},
    "dora": {"target_modules": ["q_proj", "o_proj"], "use_dora": True},
    "all-linear": {"target_modules": "all-linear"},
}


def vit() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        image_size=16, patch_size=8, num_labels=3,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config).double().eval()


def adapted(network: nn.Module, kind: str) -> nn.Module:
    """With adapters as if trained."""
    network = peft.get_peft_model(network, peft.LoraConfig(r=2, **ADAPTERS[kind])).eval()
    torch.manual_seed(2)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "lora_" in name:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return network


def answer(network: nn.Module) -> Tensor:
    with torch.no_grad():
        return network(IMAGES).logits


@pytest.mark.parametrize("kind", ADAPTERS)
@pytest.mark.parametrize("gate", ["se", "step", "asr:se", "cbam"])
def test_adapters_after_gates_answer_as_the_network_with_merged_weights(kind, gate):
    gated, _ = attnlab.insert(vit(), gate)
    before = answer(gated)
    network = adapted(gated, kind)
    want = answer(network)
    assert (want - before).abs().max() > 1e-6
    # The reference has no adapters at all: plain layers with the merged weights, by peft itself,
    # loaded into a network into which the gates were inserted alone.
    merged = copy.deepcopy(network).merge_and_unload()
    reference, _ = attnlab.insert(vit(), gate)
    reference.load_state_dict(merged.state_dict())
    torch.testing.assert_close(want, answer(reference), rtol=0, atol=1e-12)
    torch.testing.assert_close(answer(merged), want, rtol=0, atol=1e-12)
    assert not inside_adapter()


@pytest.mark.parametrize("kind", ADAPTERS)
@pytest.mark.parametrize("gate", ["se", "step"])
def test_adapters_before_gates(kind, gate):
    network, receipt = attnlab.insert(adapted(vit(), kind), gate, example=IMAGES)
    assert len(receipt.sites) == 4
    want = answer(network)
    merged = network.merge_and_unload()
    torch.testing.assert_close(answer(merged), want, rtol=0, atol=1e-12)
    assert len(list(attachments(merged))) == 4


def test_a_second_adapter_on_other_layers():
    network = adapted(attnlab.insert(vit(), "step")[0], "lora")
    one = answer(network)
    network.add_adapter("more", peft.LoraConfig(r=2, target_modules=["fc1", "o_proj"]))
    torch.testing.assert_close(answer(network), one, rtol=0, atol=1e-12)


def test_steps_are_those_of_the_plain_network():
    network = adapted(vit(), "all-linear")
    found = [step.key for step in attnlab.steps(network, IMAGES)]
    plain = [step.key for step in attnlab.steps(vit(), IMAGES)]
    assert [(key.axes, key.channels, key.addition) for key in found] == [
        (key.axes, key.channels, key.addition) for key in plain
    ]
    assert not any(
        hook.__module__.startswith("attnlab.")
        for module in network.modules()
        for hook in module._forward_hooks.values()
    )


def test_gates_in_a_part_say_which_order_works():
    network = vit()
    attnlab.insert(network.vit, "step", example=IMAGES, inplace=True)
    with pytest.raises(attnlab._errors.SiteError, match="Put the adapters in first"):
        answer(adapted(network, "lora"))
