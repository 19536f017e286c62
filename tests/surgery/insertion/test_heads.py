"""Gates in front of the output projection of attention, in networks whose classes nobody named."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import (
    AlbertConfig,
    AlbertModel,
    BertConfig,
    BertModel,
    DynamicCache,
    FalconConfig,
    FalconForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

import attnlab
from attnlab._errors import GateLostError, OptionError, SelectionError, SiteError
from attnlab.cli import main
from attnlab.gates import ConstantGate, Gate
from attnlab.lab.training import RunConfig, train
from attnlab.surgery.folding import fold_constants
from attnlab.surgery.insertion import attachments

_WIDTH, _HEADS = 32, 4
_SMALL: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": _WIDTH,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": _HEADS,
    "max_position_embeddings": 64,
}

_FALCON: dict[str, Any] = {"num_attention_heads": _HEADS, "bos_token_id": 0, "eos_token_id": 0}


def _llama(attention: str = "sdpa", shared: int = 2) -> nn.Module:
    config = LlamaConfig(**_SMALL, num_key_value_heads=shared, attn_implementation=attention)
    return LlamaForCausalLM(config)


def _gpt2() -> nn.Module:
    special = {"bos_token_id": 0, "eos_token_id": 0}
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=64, n_embd=_WIDTH, n_layer=2, n_head=_HEADS, **special)
    )


def _qwen3() -> nn.Module:
    return Qwen3ForCausalLM(Qwen3Config(**_SMALL, num_key_value_heads=2, head_dim=16))


def _vit() -> nn.Module:
    return timm.create_model(
        "vit_tiny_patch16_224",
        depth=2,
        img_size=32,
        patch_size=8,
        embed_dim=_WIDTH,
        num_heads=_HEADS,
    )


# Each with the layer that projects, and the one that is given what attention reads.
_NETWORKS: dict[str, tuple[Callable[[], nn.Module], str, str]] = {
    "llama": (_llama, "model.layers.{}.self_attn.o_proj", "model.layers.{}.self_attn.q_proj"),
    "llama-eager": (
        partial(_llama, "eager", _HEADS),
        "model.layers.{}.self_attn.o_proj",
        "model.layers.{}.self_attn.q_proj",
    ),
    "qwen3": (_qwen3, "model.layers.{}.self_attn.o_proj", "model.layers.{}.self_attn.q_proj"),
    "falcon": (  # a product with the weight, written out; keys and values of one head
        lambda: FalconForCausalLM(
            FalconConfig(vocab_size=64, hidden_size=_WIDTH, num_hidden_layers=2, **_FALCON)
        ),
        "transformer.h.{}.self_attention.dense",
        "transformer.h.{}.self_attention.query_key_value",
    ),
    "phi3": (
        lambda: Phi3ForCausalLM(Phi3Config(**_SMALL, num_key_value_heads=2, pad_token_id=0)),
        "model.layers.{}.self_attn.o_proj",
        "model.layers.{}.self_attn.qkv_proj",
    ),
    "gpt2": (_gpt2, "transformer.h.{}.attn.c_proj", "transformer.h.{}.attn.c_attn"),
    "decoder": (
        lambda: attnlab.create("decoder", width=_WIDTH, depth=2),
        "blocks.{}.attention.output",
        "blocks.{}.attention.query",
    ),
    "vit": (_vit, "blocks.{}.attn.proj", "blocks.{}.attn.qkv"),
    "bert": (
        lambda: BertModel(BertConfig(**_SMALL)),
        "encoder.layer.{}.attention.output.dense",
        "encoder.layer.{}.attention.self.query",
    ),
}
_CAUSAL = ("llama", "llama-eager", "qwen3", "gpt2", "falcon", "decoder")


def _network(name: str) -> nn.Module:
    torch.manual_seed(0)
    return _NETWORKS[name][0]().double().eval()


def _example(name: str) -> Tensor:
    torch.manual_seed(1)
    if name == "vit":
        return torch.randn(2, 3, 32, 32, dtype=torch.float64)
    return torch.randint(64, (2, 12))


def _answer(network: nn.Module, inputs: Tensor) -> Tensor:
    found = network(inputs)
    return found if isinstance(found, Tensor) else found[0]


def _gates(network: nn.Module) -> list[Gate]:
    return [each.gate_module for _, each in attachments(network)]


def _random(network: nn.Module) -> None:
    torch.manual_seed(2)
    for gate in _gates(network):
        for parameter in gate.parameters():
            nn.init.normal_(parameter, std=0.3)


def _by_hand(network: nn.Module, name: str, gates: list[Gate]) -> nn.Module:
    """A copy that gates by hooks: `2σ(W x̂ + b)` for each head, or for each of its channels."""
    network = copy.deepcopy(network)
    _, projection, reader = _NETWORKS[name]
    for number, gate in enumerate(gates):
        seen: list[Tensor] = []

        def read(_module: nn.Module, given: Any, seen: list[Tensor] = seen) -> None:
            x = given[0]
            seen[:] = [x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()]

        def act(_module: nn.Module, given: Any, seen: list[Tensor] = seen, gate: Any = gate) -> Any:
            value = 2 * torch.sigmoid(seen[0] @ gate.weight.T + gate.bias)
            found = given[0]
            heads = found.unflatten(-1, (value.shape[-1], -1)) * value[..., None]
            return (heads.flatten(-2), *given[1:])

        network.get_submodule(reader.format(number)).register_forward_pre_hook(read)
        network.get_submodule(projection.format(number)).register_forward_pre_hook(act)
    return network


@pytest.mark.parametrize("gate", ["head", "element"])
@pytest.mark.parametrize("name", _NETWORKS)
def test_gates_the_heads_as_hooks_by_hand_do(name: str, gate: str) -> None:
    plain, inputs = _network(name), _example(name)
    gated, receipt = attnlab.insert(plain, gate, start="identity", example=inputs)
    assert receipt.sites == tuple(_NETWORKS[name][1].format(number) for number in (0, 1))
    assert torch.equal(_answer(gated, inputs), _answer(plain, inputs))
    width = _HEADS * 16 if name == "qwen3" else _WIDTH
    values = _HEADS if gate == "head" else width
    assert receipt.parameters_after - receipt.parameters_before == 2 * values * (_WIDTH + 1)
    _random(gated)
    wanted = _answer(_by_hand(plain, name, _gates(gated)), inputs)
    found = _answer(gated, inputs)
    assert not torch.allclose(found, _answer(plain, inputs), atol=1e-4)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    assert [each.site.heads for _, each in attachments(gated)] == [_HEADS, _HEADS]


@pytest.mark.parametrize("name", ["llama", "gpt2", "vit"])
def test_gradients_and_weights_are_those_of_hooks(name: str) -> None:
    plain, inputs = _network(name).train(), _example(name)
    for module in plain.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    gated, _ = attnlab.insert(plain, "head", example=inputs)
    _random(gated)
    hooked = _by_hand(plain, name, _gates(gated))
    for network in (gated, hooked):
        network.zero_grad()
        _answer(network, inputs).square().mean().backward()
    grads = {n: p.grad for n, p in hooked.named_parameters() if p.grad is not None}
    found = {n: p.grad for n, p in gated.named_parameters() if n in grads}
    assert len(found) == len(grads) > 10
    for key, wanted in grads.items():
        torch.testing.assert_close(found[key], wanted, rtol=1e-9, atol=1e-13)
    assert all(bool((p.grad != 0).any()) for gate in _gates(gated) for p in gate.parameters())


@pytest.mark.parametrize("name", _CAUSAL)
def test_a_later_token_changes_nothing_before_it(name: str) -> None:
    inputs = _example(name)
    gated, _ = attnlab.insert(_network(name), "element", example=inputs)
    _random(gated)
    later = inputs.clone()
    later[:, -3:] = (later[:, -3:] + 7) % 64
    before, after = _answer(gated, inputs), _answer(gated, later)
    torch.testing.assert_close(after[:, :-3], before[:, :-3], rtol=0, atol=1e-13)
    assert not torch.allclose(after[:, -3:], before[:, -3:], atol=1e-4)


@pytest.mark.parametrize("name", ["llama", "qwen3", "gpt2"])
def test_a_cache_changes_nothing(name: str) -> None:
    inputs = _example(name)
    gated: Any = attnlab.insert(_network(name), "head", example=inputs)[0]
    _random(gated)
    whole = gated(inputs, use_cache=False).logits
    cache = DynamicCache()
    parts = [
        gated(part, past_key_values=cache, use_cache=True).logits for part in inputs.split(5, 1)
    ]
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-12)
    said = [
        gated.generate(inputs, max_new_tokens=6, do_sample=False, use_cache=use, pad_token_id=0)
        for use in (True, False)
    ]
    assert torch.equal(*said)


@pytest.mark.parametrize("name", ["llama", "decoder", "vit"])
def test_compiled_and_exported_it_answers_the_same(name: str) -> None:
    inputs = _example(name)
    gated, _ = attnlab.insert(_network(name), "head", example=inputs)
    _random(gated)
    wanted = _answer(gated, inputs)
    assert not torch.allclose(wanted, _answer(_network(name), inputs), atol=1e-4)
    compiled = torch.compile(gated, backend="eager")
    torch.testing.assert_close(_answer(compiled, inputs), wanted, rtol=0, atol=1e-12)
    keywords = {"use_cache": False} if name == "llama" else {}
    exported = torch.export.export(gated, (inputs,), keywords, strict=False).module()
    found = exported(inputs, **keywords)
    torch.testing.assert_close(
        found if isinstance(found, Tensor) else found[0], wanted, rtol=0, atol=1e-12
    )


def test_torch_fx_records_the_attention_whole() -> None:
    inputs = _example("vit")
    gated, _ = attnlab.insert(_network("vit"), "head", example=inputs)
    _random(gated)
    traced = torch.fx.symbolic_trace(gated)
    torch.testing.assert_close(traced(inputs), gated(inputs), rtol=0, atol=1e-12)
    with (
        pytest.warns(FutureWarning, match=r"torch.jit.script"),
        pytest.raises(SiteError, match=r"torch.jit.script cannot compile the gate"),
    ):
        torch.jit.script(gated)


@pytest.mark.parametrize("name", ["llama", "gpt2", "vit"])
def test_state_copies_and_removal(name: str) -> None:
    plain, inputs = _network(name), _example(name)
    gated, _ = attnlab.insert(plain, "head", example=inputs)
    _random(gated)
    again, _ = attnlab.insert(plain, "head", example=inputs)
    again.load_state_dict(gated.state_dict())
    wanted = _answer(gated, inputs)
    assert torch.equal(_answer(again, inputs), wanted)
    copied = copy.deepcopy(gated)
    for gate in _gates(gated):
        nn.init.zeros_(gate.bias)
    assert torch.equal(_answer(copied, inputs), wanted)
    attnlab.remove(copied)
    assert torch.equal(_answer(copied, inputs), _answer(plain, inputs))
    assert copied.state_dict().keys() == plain.state_dict().keys()
    assert [type(each) for each in copied.modules()] == [type(each) for each in plain.modules()]
    assert not any(each._forward_pre_hooks or each._forward_hooks for each in copied.modules())


def test_a_place_of_its_own_has_keys_of_its_own() -> None:
    inputs = _example("decoder")
    inside, _ = attnlab.insert(_network("decoder"), "head", example=inputs)
    end, _ = attnlab.insert(_network("decoder"), "head", place="branch", example=inputs)
    assert len(_gates(inside)) == 2
    assert len(_gates(end)) == 4
    with pytest.raises(RuntimeError, match="Missing key"):
        end.load_state_dict(inside.state_dict())


def test_the_guard_sees_an_exchanged_layer() -> None:
    inputs = _example("llama")
    gated: Any = attnlab.insert(_network("llama"), "head", example=inputs)[0]
    _random(gated)
    wanted = _answer(gated, inputs)
    attention = gated.model.layers[0].self_attn
    # A layer that takes the place of another, as tools that quantise do: the gate goes with it.
    for name in ("o_proj", "q_proj"):
        new = nn.Linear(_WIDTH, _WIDTH, bias=False).double()
        new.load_state_dict(getattr(attention, name).state_dict())
        setattr(attention, name, new)
    assert torch.equal(_answer(gated, inputs), wanted)
    for module in gated.modules():  # a tool that clears hooks
        module._forward_pre_hooks.clear()
    assert torch.equal(_answer(gated, inputs), wanted)
    attention.o_proj = None
    with pytest.raises(GateLostError, match=r"in front of 'model.layers.0.self_attn.o_proj'"):
        _answer(gated, inputs)


def test_what_attention_reads_is_missed_loudly() -> None:
    inputs = _example("decoder")
    gated: Any = attnlab.insert(_network("decoder"), "head", example=inputs)[0]
    attention = gated.blocks[0].attention
    with pytest.raises(SiteError, match=r"reads what 'blocks.0.attention.query' is given"):
        attention.output(torch.zeros(1, 2, _WIDTH, dtype=torch.float64))
    with pytest.raises(SiteError, match="was not called with a tensor first"):
        attention.output(input=torch.zeros(1, 2, _WIDTH, dtype=torch.float64))


def test_a_forward_that_broke_off_leaves_nothing_to_the_next() -> None:
    """What the attention read stays behind, since the projection never ran."""
    network, tokens = _network("llama"), _example("llama")
    gated = attnlab.insert(network, "head", example=tokens)[0].eval()
    _random(gated)
    expected = _answer(gated, tokens)
    values = gated.get_submodule("model.layers.0.self_attn.v_proj")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with values.register_forward_pre_hook(stop), pytest.raises(KeyboardInterrupt):
        _answer(gated, tokens.flip(1))
    assert torch.equal(_answer(gated, tokens), expected)


def test_checkpointed_blocks_have_the_same_gradients() -> None:
    inputs = _example("decoder")
    gated: Any = attnlab.insert(_network("decoder"), "head", example=inputs)[0]
    _random(gated)
    x = torch.randn(2, 12, _WIDTH, dtype=torch.float64)
    block, cos, sin = gated.blocks[0], gated.cos[:12], gated.sin[:12]
    grads = []
    for run in (block, partial(checkpoint, block, use_reentrant=False)):
        block.zero_grad()
        run(x, cos, sin).square().sum().backward()
        grads.append(_gates(gated)[0].weight.grad.clone())
    assert torch.equal(*grads)
    assert bool((grads[0] != 0).any())


def test_adapters_read_what_is_gated() -> None:
    peft = pytest.importorskip("peft")
    inputs = _example("llama")
    config = peft.LoraConfig(target_modules=["o_proj", "q_proj"], init_lora_weights=False)
    torch.manual_seed(3)
    adapted = peft.get_peft_model(_network("llama"), config).base_model.model.double().eval()
    gated, receipt = attnlab.insert(adapted, "head", example=inputs)
    assert receipt.sites[0] == "model.layers.0.self_attn.o_proj"
    _random(gated)
    wanted = _answer(_by_hand(adapted, "llama", _gates(gated)), inputs)
    torch.testing.assert_close(_answer(gated, inputs), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("gate", ["asr:se", "scale", "rezero"])
@pytest.mark.parametrize("name", ["llama", "llama-eager", "gpt2", "qwen3", "vit", "bert"])
def test_constant_gates_at_heads_fold_back(name: str, gate: str) -> None:
    plain, inputs = _network(name), _example(name)
    gated, _ = attnlab.insert(plain, gate, place="heads", example=inputs)
    assert all(isinstance(each, ConstantGate) for each in _gates(gated))
    assert _gates(gated)
    _random(gated)
    wanted = _answer(gated, inputs)
    assert not torch.allclose(wanted, _answer(plain, inputs), atol=1e-4)
    back, receipt = attnlab.fold(gated, example=inputs)
    assert back.state_dict().keys() == plain.state_dict().keys()
    torch.testing.assert_close(_answer(back, inputs), wanted, rtol=0, atol=1e-12)
    into = {name for row in receipt.rows for name in row.into}
    assert into
    assert all("proj" in n or "attn" in n or "attention" in n for n in into)


@pytest.mark.parametrize("name", ["llama", "gpt2", "vit"])
def test_heads_that_turned_out_constant_fold_into_the_plain_network(name: str) -> None:
    plain, inputs = _network(name), _example(name)
    gated, _ = attnlab.insert(plain, "head", example=inputs)
    torch.manual_seed(4)
    for gate in _gates(gated):
        nn.init.normal_(gate.bias)
    wanted = _answer(gated, inputs)
    back, receipt = fold_constants(gated, [inputs])
    assert not any(row.kept for row in receipt.rows)
    assert len(receipt.rows) == 2
    assert back.state_dict().keys() == plain.state_dict().keys()
    torch.testing.assert_close(_answer(back, inputs), wanted, rtol=0, atol=1e-12)
    _random(gated)
    stays, receipt = fold_constants(gated, [inputs], tolerance=0.01)
    assert all("varies by" in row.kept for row in receipt.rows)
    assert torch.equal(_answer(stays, inputs), _answer(gated, inputs))


def test_stripe_and_stiffness_see_gates_at_heads() -> None:
    inputs = _example("decoder")
    gated, _ = attnlab.insert(_network("decoder"), "head", example=inputs)
    found = attnlab.stripe(gated, [inputs])
    assert [site.label for site in found.sites] == ["1.0", "1.1"]
    _, receipt = attnlab.insert(_network("decoder"), "head", example=inputs)
    assert "of 2 attentions (place='heads'), and on none of the other 2 steps" in str(receipt)
    assert len(attnlab.steps(gated, inputs)) == len(attnlab.steps(_network("decoder"), inputs)) == 4


def test_networks_without_attention_say_so() -> None:
    images = torch.randn(2, 3, 32, 32)
    network = attnlab.create("resnet20")
    _, receipt = attnlab.insert(network, "head", example=images)
    assert any("no attention was seen" in note for note in receipt.notes)
    with pytest.raises(SiteError, match="there is no attention"):
        attnlab.insert(network, "head", place="heads", example=images)


class _Fused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return x + self.attention(y, y, y, need_weights=False)[0]


class _Interleaved(nn.Module):
    """Channels of heads lie one after the other in turn: no run of channels is a head."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(2, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        found = nn.functional.scaled_dot_product_attention(q, k, v)
        return x + self.proj(found.permute(0, 2, 3, 1).flatten(2))


def test_what_cannot_be_gated_is_refused_with_the_reason() -> None:
    x = torch.randn(2, 5, 8)
    with pytest.raises(SiteError, match=r"nn.MultiheadAttention.*place='branch'"):
        attnlab.insert(_Fused(), "head", example=x)
    attnlab.insert(_Fused(), "head", place="branch", example=x)
    with pytest.raises(SiteError, match="its 2 heads do not lie side by side"):
        attnlab.insert(_Interleaved(), "head", example=x)
    shared = AlbertModel(AlbertConfig(**_SMALL, embedding_size=16)).eval()
    with pytest.raises(SiteError, match="runs 2 times in one forward") as refused:
        attnlab.insert(shared, "head", example=_example("bert"))
    assert str(refused.value).endswith("\nThey are all that where=None chooses.")
    with pytest.raises(SelectionError) as empty:
        attnlab.insert(shared, "se", where=lambda site: not site.refusal, example=_example("bert"))
    assert str(empty.value).startswith("where, a function, selects no site. There are 4 sites in ")
    assert "No gate can act at any of them; of the first, its addition is made by" in str(
        empty.value
    )
    assert "runs 2 times in one forward" in str(empty.value)
    inputs = _example("decoder")
    with pytest.raises(OptionError, match=r"heads=2, but the attention .* has 4 heads"):
        attnlab.insert(_network("decoder"), "head", heads=2, example=inputs)
    with pytest.raises(OptionError, match="'lambda' acts at the addition"):
        attnlab.insert(_network("decoder"), "lambda", place="heads", example=inputs)
    with pytest.raises(OptionError, match="'step' acts at the addition"):
        attnlab.insert(_network("decoder"), "step", place="heads", example=inputs)
    with pytest.raises(SiteError, match="the future would leak"):
        attnlab.insert(_network("decoder"), "se", place="heads", example=inputs)


@pytest.mark.parametrize("place", ["heads", "branch"])
@pytest.mark.parametrize("name", ["llama", "gpt2", "vit"])
def test_a_network_is_gated_trained_and_plain_again(name: str, place: Any) -> None:
    """The one path that the page shows: insert, train, fold."""
    plain, inputs = _network(name), _example(name)
    gated, _ = attnlab.insert(plain, "scale", start="identity", place=place, example=inputs)
    assert torch.equal(_answer(gated, inputs), _answer(plain, inputs))
    gated, _ = attnlab.insert(gated, "head", start="identity", example=inputs)
    assert (_answer(gated, inputs) - _answer(plain, inputs)).abs().max() <= 1e-12
    # Heads whose biases are learned alone are the same for every token.
    for gate in _gates(gated):
        for key, parameter in gate.named_parameters():
            parameter.requires_grad_(key != "weight")
    optimizer = torch.optim.AdamW([p for p in gated.parameters() if p.requires_grad], 1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        _answer(gated, inputs).square().mean().backward()
        optimizer.step()
    wanted = _answer(gated, inputs)
    assert all(
        bool((p != 0).any()) for g in _gates(gated) for k, p in g.named_parameters() if k == "bias"
    )
    back, receipt = fold_constants(gated, [inputs], tolerance=10.0)
    assert not any(row.kept for row in receipt.rows)
    assert back.state_dict().keys() == plain.state_dict().keys()
    assert (_answer(back, inputs) - wanted).abs().max() <= 1e-12
    assert (wanted - _answer(plain, inputs)).abs().max() > 1e-4


def test_a_run_with_heads_folds_by_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = RunConfig(
        task="language",
        data={"name": "stdlib", "options": {"context": 16}, "test_subset": 8},
        backbone="decoder",
        backbone_options={"width": 16, "depth": 2, "context": 16},
        attention="head",
        place="heads",
        recipe={"name": "language", "steps": 2, "interval": 2, "warmup_steps": 1},
    )
    train(config, tmp_path / "run", threads=1)
    file = str(tmp_path / "plain.safetensors")
    main(["fold", str(tmp_path / "run"), "--constants", "-o", file])
    shown = capsys.readouterr().out
    assert "blocks.0.attention.output (input), blocks.1.attention.output (input)" in shown
    assert "accuracy" in shown
    assert not list(attachments(attnlab.load(file)))
