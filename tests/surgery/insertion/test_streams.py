"""Hyper-connections put into existing networks: streams, what carries, reads and writes them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertModel,
    DynamicCache,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

import attnlab
from attnlab._errors import FoldError, OptionError, SiteError
from attnlab.cli import main
from attnlab.gates import HyperConnections
from attnlab.instruments.forms import describe_steps
from attnlab.surgery.insertion import attachments

_SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


def _network(name: str) -> nn.Module:
    torch.manual_seed(0)
    if name == "llama":
        return LlamaForCausalLM(LlamaConfig(**_SIZES)).eval()
    if name == "gpt2":
        special = {"bos_token_id": 0, "eos_token_id": 0}
        return GPT2LMHeadModel(
            GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, **special)
        ).eval()
    if name == "vit":
        sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "num_heads": 4, "depth": 2}
        return timm.create_model("vit_tiny_patch16_224", **sizes).eval()
    return attnlab.create("decoder", width=32, depth=3).eval()


def _example(name: str, dtype: torch.dtype = torch.float64) -> Tensor:
    torch.manual_seed(1)
    if name == "vit":
        return torch.randn(2, 3, 32, 32, dtype=dtype)
    return torch.randint(64, (2, 12))


def _answer(network: nn.Module, inputs: Tensor) -> Tensor:
    found = network(inputs)
    return found if isinstance(found, Tensor) else found[0]


def _gates(network: nn.Module) -> list[Any]:
    return [each.gate_module for _, each in attachments(network)]


def _random(network: nn.Module) -> nn.Module:
    torch.manual_seed(2)
    with torch.no_grad():
        for gate in _gates(network):
            for parameter in gate.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
    return network


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("streams", [1, 2, 4])
@pytest.mark.parametrize("name", ["llama", "gpt2", "vit", "decoder"])
def test_at_first_it_answers_as_before(name: str, streams: int, dtype: torch.dtype) -> None:
    plain, inputs = _network(name).to(dtype), _example(name, dtype)
    gated, receipt = attnlab.insert(plain, HyperConnections, streams=streams, example=inputs)
    steps = 6 if name == "decoder" else 4
    assert torch.equal(_answer(gated, inputs), _answer(plain, inputs))
    added = receipt.parameters_after - receipt.parameters_before
    assert added == steps * (streams * streams + 2 * streams)
    assert not torch.allclose(_answer(_random(gated), inputs), _answer(plain, inputs), atol=1e-3)


def test_three_streams_answer_as_before_to_rounding() -> None:
    plain, inputs = _network("decoder").double(), _example("decoder")
    gated, _ = attnlab.insert(plain, HyperConnections, streams=3, example=inputs)
    torch.testing.assert_close(_answer(gated, inputs), _answer(plain, inputs), rtol=0, atol=1e-14)


def _by_formula(plain: Any, gates: list[HyperConnections], tokens: Tensor) -> Tensor:
    """`X ← C X + w ⊗ f(r X)`, written out for the decoder."""
    cos, sin = plain.cos[:12], plain.sin[:12]
    branches = []
    for block in plain.blocks:
        branches += [
            lambda x, block=block: block.attention(block.norm1(x), cos, sin),
            lambda x, block=block: block.mlp(block.norm2(x)),
        ]
    state = plain.tokens(tokens)
    streams = torch.stack([state] * gates[0].streams)
    for branch, gate in zip(branches, gates, strict=True):
        f = branch(state)
        streams = torch.einsum("ij,jbtc->ibtc", gate.matrix, streams)
        streams = streams + torch.einsum("i,btc->ibtc", gate.write, f)
        state = torch.einsum("i,ibtc->btc", gate.read, streams)
    return nn.functional.linear(plain.norm(state), plain.tokens.weight)


def test_the_answer_and_every_gradient_are_those_of_the_formula() -> None:
    plain: Any = _network("decoder").double()
    tokens = _example("decoder")
    gated, _ = attnlab.insert(plain, HyperConnections, streams=4, example=tokens)
    reads = [gate.read.tolist() for gate in _gates(gated)]
    assert reads[:4] == [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0]]
    assert reads[-1] == [0.25] * 4
    gates = _gates(_random(gated))
    found, wanted = gated(tokens), _by_formula(plain, gates, tokens)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    numbers = [p for gate in gates for p in gate.parameters()]
    one = torch.autograd.grad(found.square().mean(), numbers)
    other = torch.autograd.grad(wanted.square().mean(), numbers)
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-13)
        assert bool((a != 0).any())


def test_streams_come_apart_when_they_are_trained() -> None:
    tokens = _example("decoder")
    gated, _ = attnlab.insert(_network("decoder"), HyperConnections, streams=2, example=tokens)
    optimizer = torch.optim.Adam(gated.parameters(), 1e-2)
    losses = []
    for _ in range(5):
        logits = gated(tokens)[:, :-1]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert all(not torch.equal(gate.write[:1], gate.write[1:]) for gate in _gates(gated)[:-1])


def test_causal_with_and_without_cache() -> None:
    tokens = _example("llama")
    gated: Any = _random(
        attnlab.insert(_network("llama").double(), HyperConnections, example=tokens)[0]
    )
    whole = gated(tokens, use_cache=False).logits
    later = tokens.clone()
    later[:, -2:] = (later[:, -2:] + 3) % 64
    torch.testing.assert_close(gated(later).logits[:, :-2], whole[:, :-2], rtol=0, atol=1e-13)
    cache = DynamicCache()
    parts = [gated(part, past_key_values=cache).logits for part in tokens.split(5, 1)]
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-12)
    said = [
        gated.generate(tokens, max_new_tokens=5, do_sample=False, use_cache=use, pad_token_id=0)
        for use in (True, False)
    ]
    assert torch.equal(*said)


@torch.no_grad()
def test_compiled_exported_copied_and_taken_off() -> None:
    plain, tokens = _network("decoder").double(), _example("decoder")
    gated, _ = attnlab.insert(plain, HyperConnections, streams=2, example=tokens)
    wanted = _random(gated)(tokens)
    torch.testing.assert_close(
        torch.compile(gated, backend="eager")(tokens), wanted, rtol=0, atol=1e-12
    )
    exported = torch.export.export(gated, (tokens,), strict=False).module()
    torch.testing.assert_close(exported(tokens), wanted, rtol=0, atol=1e-12)
    again, _ = attnlab.insert(plain, HyperConnections, streams=2, example=tokens)
    again.load_state_dict(gated.state_dict())
    assert torch.equal(again(tokens), wanted)
    copied = copy.deepcopy(gated)
    for gate in _gates(gated):
        gate.write.zero_()
    assert torch.equal(copied(tokens), wanted)
    attnlab.remove(copied)
    assert torch.equal(copied(tokens), plain(tokens))


def test_other_gates_act_on_the_branch_alone() -> None:
    plain, tokens = _network("decoder").double(), _example("decoder")
    one, _ = attnlab.insert(plain, HyperConnections, streams=2, example=tokens)
    one, _ = attnlab.insert(one, "rezero", initial=0.75, place="branch", example=tokens)
    for gate in _gates(one):
        if isinstance(gate, HyperConnections):
            with torch.no_grad():
                gate.matrix.add_(torch.tensor([[0.1, -0.2], [0.3, 0.0]]))
    two = copy.deepcopy(one)
    attnlab.remove(two)
    hyper = [gate for gate in _gates(one) if isinstance(gate, HyperConnections)]
    for block in two.blocks:  # the factor of all branches, put into their last layers
        for layer in (block.attention.output, block.mlp.down):
            layer.weight.data.mul_(0.75)
    torch.testing.assert_close(one(tokens), _by_formula(two, hyper, tokens), rtol=0, atol=1e-12)
    with pytest.raises(SiteError, match="is changed by the gate"):
        attnlab.insert(one, "lambda", example=tokens)


@pytest.mark.parametrize("name", ["llama", "gpt2", "vit"])
def test_it_folds_back_where_all_steps_read_one_sum(name: str) -> None:
    plain, inputs = _network(name).double(), _example(name)
    gated, _ = attnlab.insert(plain, HyperConnections, streams=2, example=inputs)
    back, _ = attnlab.fold(gated, example=inputs)
    torch.testing.assert_close(_answer(back, inputs), _answer(plain, inputs), rtol=0, atol=1e-12)
    sizes = [0.5, 1.25, 2.0, -0.75]
    with torch.no_grad():
        for gate, size in zip(_gates(gated), sizes, strict=True):
            gate.matrix.copy_(torch.tensor([[0.25, 0.75], [1.5, -0.5]]))
            gate.write.fill_(size)
            gate.read.copy_(torch.tensor([0.3, 0.7]))
    wanted = _answer(gated, inputs)
    assert not torch.allclose(wanted, _answer(plain, inputs), atol=1e-3)
    back, receipt = attnlab.fold(gated, example=inputs)
    assert [row.largest for row in receipt.rows] == pytest.approx(sizes, abs=1e-12)
    assert back.state_dict().keys() == plain.state_dict().keys()
    torch.testing.assert_close(_answer(back, inputs), wanted, rtol=0, atol=1e-12)


def test_what_no_plain_network_computes_is_not_folded() -> None:
    tokens = _example("decoder")
    gated, _ = attnlab.insert(_network("decoder"), HyperConnections, streams=2, example=tokens)
    with torch.no_grad():
        _gates(gated)[1].write[0] = 1.1
    with pytest.raises(FoldError, match="its steps read different sums"):
        attnlab.fold(gated, example=tokens)
    kept, receipt = attnlab.fold(gated, partial=True, example=tokens)
    assert all("read different sums" in row.kept for row in receipt.rows)
    assert torch.equal(kept(tokens), gated(tokens))


def test_steps_are_read_with_their_streams() -> None:
    tokens = _example("decoder")
    gated, _ = attnlab.insert(_network("decoder"), HyperConnections, streams=2, example=tokens)
    turn = torch.tensor([[0.0, 2.0], [1.0, 0.0]])
    with torch.no_grad():
        for gate in _gates(gated):
            gate.matrix.copy_(turn)
    found = describe_steps(gated, [tokens])
    assert {step.formula for step in found.steps} == {"C X + w f(r X)"}
    assert [step.streams for step in found.steps] == [2] * 6
    assert found.steps[0].read == "a row over 2 streams"
    assert found.steps[0].write == "a column over 2 streams"
    assert [step.gain for step in found.steps] == pytest.approx([2.0] * 6)
    # Two turns are 2 I, so the product of all so far is 2, 2, 4, 4, 8, 8.
    assert [step.gain_to_here for step in found.steps] == pytest.approx([2, 2, 4, 4, 8, 8])
    assert "The state has 2 streams." in found.verdict


def test_a_file_and_the_commands_have_the_streams(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens, file = _example("decoder"), str(tmp_path / "hyper.safetensors")
    asked = ["--gate", "attnlab.gates.HyperConnections", "--set", "streams=2", "-o", file]
    main(["insert", "decoder", *asked])
    network = _random(attnlab.load(file))
    attnlab.save(network, file)
    assert torch.equal(attnlab.load(file)(tokens), network(tokens))
    main(["steps", file, "--data", "stdlib", "--limit", "2"])
    assert "The state has 2 streams." in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["fold", file, "-o", str(tmp_path / "plain.safetensors")])
    assert "its steps read different sums" in capsys.readouterr().err


def test_states_that_are_changed_in_between_are_refused() -> None:
    bert, tokens = BertModel(BertConfig(**_SIZES)).eval(), _example("decoder")
    with pytest.raises(SiteError, match="another step or a norm is between"):
        attnlab.insert(bert, HyperConnections, example=tokens)
    with pytest.raises(SiteError, match="relu follows it"):
        attnlab.insert(attnlab.create("resnet20"), HyperConnections)
    with pytest.raises(SiteError, match="Choose steps that follow one another"):
        attnlab.insert(_network("decoder"), HyperConnections, where="blocks:0,2", example=tokens)
    with pytest.raises(OptionError, match="read another stream in each"):
        attnlab.insert(_network("decoder"), HyperConnections, shared=True, example=tokens)
    with pytest.raises(OptionError, match="streams"):
        attnlab.insert(_network("decoder"), HyperConnections, streams=0, example=tokens)


def test_a_step_alone_is_missed_loudly() -> None:
    tokens = _example("decoder")
    gated: Any = attnlab.insert(_network("decoder"), HyperConnections, example=tokens)[0]
    state = torch.zeros(1, 3, 32)
    gated.blocks[0](state, gated.cos[:3], gated.sin[:3])
    gated.blocks[1](state, gated.cos[:3], gated.sin[:3])
    gated.blocks[2](state, gated.cos[:3], gated.sin[:3])
    with pytest.raises(SiteError, match="goes on with the streams"):
        gated.blocks[1](state, gated.cos[:3], gated.sin[:3])


def test_hyper_connections_start_as_copies_of_one_state() -> None:
    """Four streams unless told: carried as they are, all written to, and the mean of them read."""
    gate = HyperConnections(8)
    assert gate.streams == 4
    assert HyperConnections(8, 1).streams == 1
    for parameter in gate.parameters():
        nn.init.normal_(parameter)
    assert gate.start_constant() == 1.0
    streams, branch = torch.randn(4, 2, 8, 5), torch.randn(2, 8, 5)
    assert torch.equal(gate.carried(streams), streams)
    assert torch.equal(gate.written(branch), branch.expand(4, 2, 8, 5))
    torch.testing.assert_close(gate.reading(streams), streams.mean(0))
    assert torch.equal(gate(branch, branch), torch.ones(1, 8, 1))
    for stream in (2, 6, -2):
        gate.read_one(stream)
        assert torch.equal(gate.reading(streams), streams[2])
    gate.read_one(None)
    torch.testing.assert_close(gate.reading(streams), streams.mean(0))
