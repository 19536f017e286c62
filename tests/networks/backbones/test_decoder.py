"""The decoder against Llama of transformers with the same weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import attnlab
from attnlab._errors import InputError, OptionError, UnknownNameError, WeightsError

SMALL = {"width": 32, "depth": 3, "heads": 4, "context": 24, "hidden": 48}
LLAMA = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 24,
    "tie_word_embeddings": True,
}
NAMES = {
    "model.embed_tokens": "tokens",
    "model.norm": "norm",
    "model.layers": "blocks",
    "self_attn.q_proj": "attention.query",
    "self_attn.k_proj": "attention.key",
    "self_attn.v_proj": "attention.value",
    "self_attn.o_proj": "attention.output",
    "mlp.gate_proj": "mlp.gate",
    "mlp.up_proj": "mlp.up",
    "mlp.down_proj": "mlp.down",
    "input_layernorm": "norm1",
    "post_attention_layernorm": "norm2",
}


def renamed(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    found = {}
    for name, value in state.items():
        if name == "lm_head.weight":
            continue
        for theirs, ours in NAMES.items():
            name = name.replace(theirs, ours)
        found[name] = value
    return found


@pytest.mark.parametrize(
    ("dtype", "logit", "loss"), [("float32", 2e-6, 1e-6), ("float64", 1e-6, 1e-8)]
)
def test_it_is_llama(dtype: str, logit: float, loss: float) -> None:
    """transformers normalises in float32 and has the angles in float32, so that is the limit."""
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    theirs = attnlab.create("transformers:llama", 50, **LLAMA)
    with torch.no_grad():
        for parameter in theirs.parameters():  # so that every part of it shows
            parameter.add_(0.1 * torch.randn_like(parameter))
    ours = attnlab.create("decoder", 50, **SMALL)
    ours.load_state_dict(renamed(theirs.state_dict()))
    kind = getattr(torch, dtype)
    theirs, ours = theirs.to(kind).eval(), ours.to(kind).eval()
    tokens = torch.randint(50, (3, 24))
    with torch.no_grad():
        a, b = theirs(tokens).logits, ours(tokens)
    assert (a - b).abs().max() < logit * a.abs().max()
    wanted, got = (
        torch.nn.functional.cross_entropy(found[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        for found in (a, b)
    )
    assert abs(got - wanted) < loss


def test_it_counts_as_llama_does() -> None:
    """Per layer 4 W² of attention, 3 W H of the MLP and 2 W of norms; tokens and the last norm."""
    network = attnlab.create("decoder")
    assert (
        sum(p.numel() for p in network.parameters())
        == 6 * (4 * 96**2 + 3 * 96 * 256 + 2 * 96) + 256 * 96 + 96
    )


def test_it_has_two_steps_per_block_and_no_position_sees_a_later_one() -> None:
    network = attnlab.create("decoder", **SMALL).eval()
    tokens = torch.randint(256, (2, 24))
    assert len(attnlab.steps(network, tokens)) == 6
    other = tokens.clone()
    other[:, 12:] = (other[:, 12:] + 1) % 256
    with torch.no_grad():
        a, b = network(tokens), network(other)
        shorter = network(tokens[:, :12])
    assert torch.equal(a[:, :12], b[:, :12])
    assert not torch.allclose(a[:, 12:], b[:, 12:])
    assert torch.allclose(shorter, a[:, :12], atol=1e-6)


@pytest.mark.parametrize("family", ["gpt2", "gpt_neox", "qwen3"])
def test_causal_families_of_transformers(family: str) -> None:
    pytest.importorskip("transformers")
    sizes = (
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32}
        if family == "gpt2"
        else {**LLAMA, "num_hidden_layers": 2}
    )
    if family == "gpt_neox":
        del sizes["num_key_value_heads"]
    network = attnlab.create(f"transformers:{family}", 60, **sizes)
    assert network(torch.randint(60, (2, 9))).logits.shape == (2, 9, 60)
    assert len(attnlab.steps(network)) == (2 if family == "gpt_neox" else 4)


def test_wrong_names_options_and_inputs() -> None:
    pytest.importorskip("transformers")
    with pytest.raises(UnknownNameError, match="Did you mean 'llama'"):
        attnlab.create("transformers:lama")
    with pytest.raises(
        OptionError, match=r"has no setting 'hiden_size'\. Did you mean 'hidden_size'"
    ):
        attnlab.create("transformers:llama", hiden_size=32)
    with pytest.raises(OptionError, match="width = 20 and heads = 4"):
        attnlab.create("decoder", width=20, heads=4)
    network = attnlab.create("decoder", **SMALL)
    with pytest.raises(InputError, match="at most 24 positions but got 25"):
        network(torch.zeros(1, 25, dtype=torch.long))
    with pytest.raises(InputError, match=r"whole numbers, but got torch.float32 of shape \(1, 3\)"):
        network(torch.zeros(1, 3))


def test_a_network_larger_than_the_memory_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    from attnlab.networks import _transformers

    llama = attnlab.create("transformers:llama", 50, **LLAMA)
    weights = sum(parameter.nbytes for parameter in llama.parameters())
    monkeypatch.setattr(_transformers, "physical_memory", lambda: 2 * weights)
    attnlab.create("transformers:llama", 50, **LLAMA)
    monkeypatch.setattr(_transformers, "physical_memory", lambda: weights - 1)
    with pytest.raises(InputError, match=r"transformers:llama needs 0 GB .* num_hidden_layers=2"):
        attnlab.create("transformers:llama", 50, **LLAMA)


def test_memory_of_this_machine() -> None:
    from attnlab.networks._transformers import physical_memory

    there = physical_memory()
    assert there is None or there > 2**28


def test_a_family_of_transformers_takes_a_file_of_weights(tmp_path: Path) -> None:
    torch.manual_seed(0)
    llama = attnlab.create("transformers:llama", 50, **LLAMA)
    torch.save(llama.state_dict(), tmp_path / "llama.pt")
    again = attnlab.create("transformers:llama", 50, tmp_path / "llama.pt", **LLAMA)
    for name, value in again.state_dict().items():
        assert torch.equal(value, llama.state_dict()[name]), name
    with pytest.raises(WeightsError) as error:
        attnlab.create("transformers:llama", 50, "published", **LLAMA)
    assert str(error.value) == (
        "There is no file of weights at 'published'. Expected the path of a .safetensors or torch "
        "file; published weights are read by transformers' own from_pretrained."
    )
