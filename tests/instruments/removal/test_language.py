"""Steps of language models are counted and removed rightly, to the bit, against hooks by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import attnlab
from attnlab._errors import InputError
from attnlab.instruments.removal import RANKINGS, RemovalTrial, ShortenResult, removal_curves
from attnlab.instruments.removal.shorten import shorten
from attnlab.instruments.removal.text import log_probabilities
from attnlab.page.rendering import render

transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
TOKENS = torch.randint(0, 99, (2, 8), generator=torch.Generator().manual_seed(0))
# The norm of all of these begins with a cast to the type that the state has.
FAMILIES: dict[str, dict[str, Any]] = {
    "Llama": {},
    "Qwen2": {},
    "Qwen3": {"head_dim": 8},
    "Mistral": {"head_dim": 8},
    "Phi3": {"pad_token_id": 0},
    "Granite": {"residual_multiplier": 0.3},
    "Mixtral": EXPERTS,
    "GptOss": {**EXPERTS, "head_dim": 8},
}


def network(family: str, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**SIZES, **options)
    config._attn_implementation = "eager"
    made: nn.Module = getattr(transformers, f"{family}ForCausalLM")(config)
    return made.eval()


def logits(model: nn.Module) -> Tensor:
    with torch.no_grad():
        found: Tensor = model(input_ids=TOKENS).logits
    return found


def zeros(_module: nn.Module, _given: Any, output: Any) -> Any:
    if isinstance(output, tuple):
        return (torch.zeros_like(output[0]), *output[1:])
    return torch.zeros_like(output)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_removed_step_is_its_sublayer_multiplied_by_zero(family: str) -> None:
    model = network(family, **FAMILIES[family])
    found = attnlab.steps(model, {"input_ids": TOKENS})
    assert [step.label for step in found] == ["1.0", "1.0:1", "1.1", "1.1:1", "1.2", "1.2:1"]
    for label, sublayer in (("1.1", "self_attn"), ("1.1:1", "mlp")):
        shorter, receipt = shorten(model, [label], example={"input_ids": TOKENS})
        layer = model.get_submodule("model.layers.1")
        names = dict(layer.named_children())
        by_hand = names.get(sublayer) or names["block_sparse_moe"]
        with by_hand.register_forward_hook(zeros):
            expected = logits(model)
        assert torch.equal(logits(shorter), expected), receipt
        assert not torch.equal(expected, logits(model))
        # The norm in front of the sublayer went with it.
        norm = "input_layernorm" if sublayer == "self_attn" else "post_attention_layernorm"
        assert f"model.layers.1.{norm}.weight" not in shorter.state_dict()


def test_the_feed_through_of_a_state_space_model_is_not_a_step() -> None:
    config = transformers.MambaConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=3, state_size=8
    )
    model = transformers.MambaForCausalLM(config).eval()
    found = attnlab.steps(model, {"input_ids": TOKENS})
    assert [step.name for step in found] == [f"backbone.layers.{i}" for i in range(3)]
    assert {step.stage for step in found} == {1}
    shorter, _ = shorten(model, ["1.1"], example={"input_ids": TOKENS})
    with model.backbone.layers[1].mixer.register_forward_hook(zeros):
        expected = logits(model)
    assert torch.equal(logits(shorter), expected)


def test_a_parallel_block_is_one_step_whose_two_sublayers_go() -> None:
    config = transformers.GPTJConfig(
        vocab_size=99, n_embd=32, n_layer=3, n_head=4, rotary_dim=4, n_positions=64
    )
    model = transformers.GPTJForCausalLM(config).eval()
    shorter, _ = shorten(model, ["1.1"], example={"input_ids": TOKENS})
    block = model.transformer.h[1]
    with block.attn.register_forward_hook(zeros), block.mlp.register_forward_hook(zeros):
        expected = logits(model)
    assert torch.equal(logits(shorter), expected)
    assert not any(name.startswith("transformer.h.1.mlp") for name in shorter.state_dict())


def test_a_layer_that_is_given_the_state_beside_its_input_hands_on_the_state() -> None:
    """`attention.output(hidden_states, residual)` of Megatron-BERT adds to its second argument."""
    config = transformers.MegatronBertConfig(
        vocab_size=99,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
    )
    model = transformers.MegatronBertForMaskedLM(config).eval()
    shorter, _ = shorten(model, ["1.1"], example={"input_ids": TOKENS})
    with model.bert.encoder.layer[1].attention.output.dense.register_forward_hook(zeros):
        expected = logits(model)
    assert torch.equal(logits(shorter), expected)


def test_kl_is_that_of_torch_with_the_sublayer_zero() -> None:
    model = network("Llama").double()
    batches = [{"input_ids": TOKENS[:1]}, {"input_ids": TOKENS[1:]}]
    trial = RemovalTrial(model, batches)
    found = RANKINGS["kl"].scores(trial, ())
    by_label = {step.label: found[step.key] for step in trial.found.steps}
    whole = logits(model).flatten(0, 1).log_softmax(-1)
    for number in range(3):
        for label, sublayer in ((f"1.{number}", "self_attn"), (f"1.{number}:1", "mlp")):
            module = model.get_submodule(f"model.layers.{number}.{sublayer}")
            with module.register_forward_hook(zeros):
                shorter = logits(model).flatten(0, 1).log_softmax(-1)
            expected = F.kl_div(shorter, whole, reduction="batchmean", log_target=True)
            assert by_label[label] == pytest.approx(float(expected), rel=1e-12)


def test_kl_needs_a_distribution() -> None:
    with pytest.raises(InputError, match="expected a network whose first result is"):
        log_probabilities((torch.zeros(3),))


FOLLOWING = TOKENS.roll(-1, 1)
FOLLOWING[:, -1] = -100


def nats(model: nn.Module) -> float:
    """By torch's own cross-entropy, over the tokens that count."""
    return float(F.cross_entropy(logits(model).flatten(0, 1), FOLLOWING.flatten()))


def test_the_loss_of_a_text_is_that_of_torch_with_the_sublayer_zero() -> None:
    model = network("Llama").double()
    # Batches of unequal numbers of tokens: a mean of means would differ.
    parts = [(TOKENS[:1], FOLLOWING[:1]), ({"input_ids": TOKENS[1:]}, FOLLOWING[1:])]
    trial = RemovalTrial(model, parts)
    whole = nats(model)
    assert trial.is_text
    assert trial.loss_before == pytest.approx(whole, rel=1e-12)
    found = RANKINGS["loss"].scores(trial, ())
    by_label = {step.label: found[step.key] for step in trial.found.steps}
    for number in range(3):
        for label, sublayer in ((f"1.{number}", "self_attn"), (f"1.{number}:1", "mlp")):
            module = model.get_submodule(f"model.layers.{number}.{sublayer}")
            with module.register_forward_hook(zeros):
                expected = nats(model) - whole
            assert by_label[label] == pytest.approx(expected, rel=1e-9)


def test_a_receipt_has_the_perplexity_before_and_after() -> None:
    model = network("Qwen3", head_dim=8).double()
    batches = [(TOKENS, FOLLOWING)]
    shorter, receipt = shorten(model, 1, by="loss", images=batches)
    assert receipt.loss_before == pytest.approx(nats(model), rel=1e-12)
    assert receipt.loss_after == pytest.approx(nats(shorter), rel=1e-12)
    said = f"perplexity {math.exp(nats(model)):.4g} → {math.exp(nats(shorter)):.4g}"
    assert said in str(receipt)
    curves = removal_curves(model, batches, most=2, rankings=["loss"])
    points = curves.curves[0].points
    assert points[1].loss == pytest.approx(receipt.loss_after, rel=1e-12)
    assert points[1].perplexity == pytest.approx(math.exp(nats(shorter)), rel=1e-12)
    assert "perplexity from" in curves.verdict
    assert curves.table().rows[0][1].text == f"{math.exp(nats(model)):.4g}"
    assert "loss, nats per token" in render(curves.page())
    assert ShortenResult.from_json(curves.to_json()) == curves


def test_whole_numbers_that_the_network_does_not_speak_of_are_not_a_text() -> None:
    """Of a network for several labels, 0 and 1 for each: (inputs, classes), as its answers."""
    model = attnlab.create("resnet20", num_classes=3).eval()
    images = torch.randn(2, 3, 32, 32)
    trial = RemovalTrial(model, [(images, torch.tensor([[0, 1, 1], [1, 0, 0]]))])
    assert not trial.is_text
    assert trial.loss_before is None


def test_tokens_beyond_the_vocabulary_are_refused() -> None:
    model = network("Llama")
    message = "Expected tokens from 0 to 98, the network's vocabulary, and -100 where none counts"
    with pytest.raises(InputError, match=message):
        shorten(model, 1, by="loss", images=[(TOKENS, torch.full_like(TOKENS, 99))])
    with pytest.raises(InputError, match="No token of these batches counts"):
        shorten(model, 1, by="loss", images=[(TOKENS, torch.full_like(TOKENS, -100))])
