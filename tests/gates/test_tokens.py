"""Gates for tokens: by their formulas written out in numpy, in networks that must not look ahead,
with a cache of keys and values, compiled and exported."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import attnlab
from attnlab._errors import FoldError, InputError, OptionError, SiteError
from attnlab.gates import build_gate
from attnlab.surgery.folding import fold_constants
from attnlab.surgery.insertion import attachments

SMALL = {"width": 16, "depth": 2, "heads": 2, "context": 12, "hidden": 24}
LLAMA = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
}
NAMES = ("token", "head", "element", "scale", "rezero", "lambda")


def away(network: nn.Module, plain: nn.Module) -> nn.Module:
    """The gates away from their start."""
    there = {name for name, _ in plain.named_parameters()}
    random = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name not in there:
                parameter.add_(0.5 * torch.randn(parameter.shape, generator=random).to(parameter))
    return network


@pytest.mark.parametrize("read", [None, 3])
@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_the_formula_of_a_token_gate(read: int | None, factor: float) -> None:
    gate = build_gate("token", 8, read=read, factor=factor, spread=0.7).double()
    with torch.no_grad():
        gate.bias.fill_(-0.3)
    state, branch = torch.randn(2, 2, 8, 5, dtype=torch.float64)
    x, w = state.numpy(), gate.weight.detach().numpy()
    normed = x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-6)
    logits = np.einsum("bcn,c->bn", normed[:, : read or 8], w) - 0.3
    wanted = factor / (1 + np.exp(-logits))
    np.testing.assert_allclose(gate(state, branch).detach().numpy()[:, 0], wanted, rtol=1e-12)


@pytest.mark.parametrize("read", [None, 3])
@pytest.mark.parametrize(("name", "heads"), [("head", 2), ("head", 4), ("element", 8)])
def test_the_formula_of_gates_for_heads_and_elements(
    name: str, heads: int, read: int | None
) -> None:
    own = {"heads": heads} if name == "head" else {}
    gate = build_gate(name, 8, **own, read=read, factor=1.0, spread=0.7).double()
    with torch.no_grad():
        gate.bias.normal_()
    state, branch = torch.randn(2, 2, 8, 5, dtype=torch.float64)
    found = gate(state, branch).detach().numpy()
    assert found.shape == (2, 8, 5)
    weight, bias = gate.weight.detach().numpy(), gate.bias.detach().numpy()
    for token in range(5):  # one by one, with a loop over channels
        x = state[:, :, token].numpy()
        seen = (x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-6))[:, : read or 8]
        for channel in range(8):
            value = channel // (8 // heads)
            wanted = 1 / (1 + np.exp(-(seen @ weight[value] + bias[value])))
            np.testing.assert_allclose(found[:, channel, token], wanted, rtol=1e-12)


@pytest.mark.parametrize("name", ["head", "element"])
def test_it_is_the_gate_of_gated_attention(name: str) -> None:
    """Theirs reads the state after the RMSNorm of its block, whose weights are a part of W here."""
    norm = nn.RMSNorm(8, eps=1e-6).double()
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    linear = nn.Linear(8, 4 if name == "head" else 8, bias=False).double()
    gate = build_gate(name, 8, factor=1.0).double()
    with torch.no_grad():
        gate.weight.copy_(linear.weight * norm.weight)
    state, found = torch.randn(2, 3, 5, 8, dtype=torch.float64)
    theirs = torch.sigmoid(linear(norm(state)))
    per_head = found.unflatten(2, (theirs.shape[2], -1)) * theirs[..., None]
    ours = found * gate(state.transpose(1, 2), found.transpose(1, 2)).transpose(1, 2)
    torch.testing.assert_close(ours, per_head.flatten(2))


@pytest.mark.parametrize("name", ["token", "head", "element"])
def test_gradients_of_gates_for_tokens(name: str) -> None:
    gate = build_gate(name, 4, spread=0.7).double()
    state, branch = torch.randn(2, 2, 4, 3, dtype=torch.float64, requires_grad=True)
    weights = tuple(gate.parameters())

    def gated(state: torch.Tensor, branch: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return gate(state, branch) * branch

    assert torch.autograd.gradcheck(gated, (state, branch, *weights))


@pytest.mark.parametrize(("heads", "nearest"), [(6, 4), (0, 1), (-2, 1), (128, 64)])
def test_heads_that_do_not_divide_the_channels_are_refused(heads: int, nearest: int) -> None:
    with pytest.raises(OptionError) as error:
        build_gate("head", 64, heads=heads)
    assert str(error.value) == (
        f"Expected heads to divide the 64 channels but got {heads}. The nearest that does is "
        f"{nearest}."
    )


def test_a_token_gate_is_that_of_gated_attention() -> None:
    """One value for all channels of a token is the same before and after an output projection."""
    gate = build_gate("token", 8, spread=1.0).double()
    state, mixed = torch.randn(2, 1, 5, 8, dtype=torch.float64)
    value = gate(state.transpose(1, 2), mixed.transpose(1, 2)).transpose(1, 2)
    project = nn.Linear(8, 8, bias=False).double()
    torch.testing.assert_close(value * project(mixed), project(value * mixed))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("backbone", ["decoder", "transformers:llama", "transformers:gpt2"])
def test_conversion_changes_nothing_at_first(name: str, backbone: str) -> None:
    if backbone != "decoder":
        pytest.importorskip("transformers")
    options = {
        "decoder": SMALL,
        "transformers:llama": LLAMA,
        "transformers:gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32},
    }[backbone]
    plain = attnlab.create(backbone, 50, **options).double().eval()
    tokens = torch.randint(50, (2, 12))
    gated, receipt = attnlab.insert(plain, name, start="identity", place="branch", example=tokens)
    assert len(receipt.sites) == 4
    each = {"token": 17, "head": 4 * 17, "element": 16 * 17, "scale": 16, "rezero": 1, "lambda": 2}
    assert receipt.parameters_after - receipt.parameters_before == 4 * each[name]

    def answer(network: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            found = network(tokens)
        return found if isinstance(found, torch.Tensor) else found.logits

    assert (answer(gated, tokens) - answer(plain, tokens)).abs().max() <= 1e-12
    away(gated, plain)
    before = answer(gated, tokens)
    assert (before - answer(plain, tokens)).abs().max() > 1e-3
    # What comes later changes nothing that came before.
    other = tokens.clone()
    other[:, 7:] = (other[:, 7:] + 1) % 50
    after = answer(gated, other)
    assert torch.equal(before[:, :7], after[:, :7])
    assert not torch.allclose(before[:, 7:], after[:, 7:])


@pytest.mark.parametrize("name", ["scale", "rezero"])
def test_constant_gates_fold_back(name: str) -> None:
    plain = attnlab.create("decoder", **SMALL).double().eval()
    tokens = torch.randint(256, (2, 12))
    gated = away(attnlab.insert(plain, name, example=tokens)[0], plain)
    folded, _ = attnlab.fold(gated, example=tokens)
    assert folded.state_dict().keys() == plain.state_dict().keys()
    with torch.no_grad():
        assert (folded(tokens) - gated(tokens)).abs().max() <= 1e-12
        assert (folded(tokens) - plain(tokens)).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["token", "head", "element"])
def test_gates_that_turned_out_constant_fold_back(name: str) -> None:
    """Weights of zero leave σ(b), the same for every token; others stay, with a reason."""
    plain = attnlab.create("decoder", **SMALL).double().eval()
    tokens = torch.randint(256, (4, 12))
    gated = away(
        attnlab.insert(plain, name, start="identity", place="branch", example=tokens)[0], plain
    )
    kept, receipt = fold_constants(gated, [tokens])
    assert receipt.sites == ()
    assert "its gate varies by" in str(receipt)
    with torch.no_grad():
        torch.testing.assert_close(kept(tokens), gated(tokens))
        for _, each in attachments(gated):
            each.gate_module.weight.zero_()
    folded, receipt = fold_constants(gated, [tokens])
    assert len(receipt.sites) == 4
    assert folded.state_dict().keys() == plain.state_dict().keys()
    other = torch.randint(256, (3, 9))
    with torch.no_grad():
        assert (folded(other) - gated(other)).abs().max() <= 1e-12
        assert (folded(other) - plain(other)).abs().max() > 1e-3


def decoder_with_lambdas() -> tuple[nn.Module, nn.Module, list[float]]:
    """A plain decoder, the same with lambdas, and these: λ and μ of each step in their order."""
    plain = attnlab.create("decoder", **SMALL).double().eval()
    gated, _ = attnlab.insert(plain, "lambda")
    numbers = [0.8, 1.3, 1.1, -0.4, 0.6, 0.9, -1.2, 2.0]
    gates = [each.gate_module for _, each in attachments(gated)]
    with torch.no_grad():
        for gate, state, branch in zip(gates, numbers[::2], numbers[1::2], strict=True):
            gate.state.fill_(state)
            gate.branch.fill_(branch)
    return plain, gated, numbers


def test_lambdas_are_what_the_formula_says() -> None:
    plain, gated, numbers = decoder_with_lambdas()
    tokens = torch.randint(256, (2, 12))
    cos, sin = plain.cos[:12], plain.sin[:12]
    x, left = plain.tokens(tokens), iter(numbers)
    for block in plain.blocks:
        x = next(left) * x + next(left) * block.attention(block.norm1(x), cos, sin)
        x = next(left) * x + next(left) * block.mlp(block.norm2(x))
    wanted = nn.functional.linear(plain.norm(x), plain.tokens.weight)
    for training in (False, True):  # which take two ways to the addition
        with torch.no_grad():
            found = gated.train(training)(tokens)
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


def test_lambdas_get_the_gradient_of_their_formula() -> None:
    _, gated, _ = decoder_with_lambdas()
    tokens = torch.randint(256, (2, 12))
    gated(tokens).square().sum().backward()
    for _, each in attachments(gated):
        for parameter in each.gate_module.parameters():
            ends = []
            for shift in (1e-6, -1e-6):
                with torch.no_grad():
                    parameter.add_(shift)
                    ends.append(gated(tokens).square().sum())
                    parameter.sub_(shift)
            assert parameter.grad.item() == pytest.approx((ends[0] - ends[1]).item() / 2e-6, 1e-5)


@pytest.mark.parametrize("order", [("lambda", "token"), ("token", "lambda")])
def test_another_gate_beside_lambdas_multiplies_the_branch_alone(order: tuple[str, str]) -> None:
    plain = attnlab.create("decoder", **{**SMALL, "depth": 1}).double().eval()
    gated = plain
    for name in order:
        gated, _ = attnlab.insert(gated, name, where="blocks:0")
    values = {"state": 0.5, "branch": 3.0, "bias": 1.0}
    with torch.no_grad():
        for name, parameter in gated.named_parameters():
            if "attnlab" in name and name.rpartition(".")[2] in values:
                parameter.fill_(values[name.rpartition(".")[2]])
    tokens = torch.randint(256, (2, 12))
    block, cos, sin = plain.blocks[0], plain.cos[:12], plain.sin[:12]
    size = 3.0 * 2 / (1 + np.exp(-1.0))
    x = plain.tokens(tokens)
    x = 0.5 * x + size * block.attention(block.norm1(x), cos, sin)
    x = 0.5 * x + size * block.mlp(block.norm2(x))
    with torch.no_grad():
        wanted = nn.functional.linear(plain.norm(x), plain.tokens.weight)
        torch.testing.assert_close(gated(tokens), wanted, rtol=1e-12, atol=1e-12)


def test_the_state_is_scaled_once() -> None:
    gated, _ = attnlab.insert(attnlab.create("decoder", **SMALL), "lambda")
    with pytest.raises(SiteError) as error:
        attnlab.insert(gated, "lambda")
    assert str(error.value) == (
        "The state of step 1.0 is changed by the gate 'blocks.0.attnlab_0' already, and two there "
        "are one. Leave the second out, or take the first off: attnlab.remove(network)."
    )


def test_lambdas_fold_where_the_state_goes_on_as_it_is() -> None:
    """No constant of the branch stands for a number on the state, whatever the images are."""
    plain, gated, _ = decoder_with_lambdas()
    tokens = torch.randint(256, (4, 12))
    reason = "it scales the state by another number than 1, and no layer of the branch can take"
    with pytest.raises(FoldError, match=reason):
        attnlab.fold(gated, example=tokens)
    kept, receipt = fold_constants(gated, [tokens], tolerance=10.0)
    assert receipt.sites == ()
    assert reason in str(receipt)
    with torch.no_grad():
        torch.testing.assert_close(kept(tokens), gated(tokens))
    for _, each in attachments(gated):
        nn.init.ones_(each.gate_module.state)
    folded, _ = attnlab.fold(gated, example=tokens)
    assert folded.state_dict().keys() == plain.state_dict().keys()
    with torch.no_grad():
        assert (folded(tokens) - gated(tokens)).abs().max() <= 1e-12
        assert (folded(tokens) - plain(tokens)).abs().max() > 1e-3


def test_why_lambdas_do_not_fold() -> None:
    """A plain network computes the same only with another ε in each norm, ε / Λ², where Λ is the
    product of the λ so far: with the ε that it has, it is another network."""
    plain: Any = attnlab.create("decoder", **SMALL).double().eval()
    tokens = torch.randint(256, (2, 12))
    gated, _ = attnlab.insert(plain, "lambda")
    states, sizes = (0.8, 1.1, 0.6, 1.2), (1.3, -0.4, 0.9, 2.0)
    with torch.no_grad():
        for (_, each), state, size in zip(attachments(gated), states, sizes, strict=True):
            each.gate_module.state.fill_(state)
            each.gate_module.branch.fill_(size)
        layers = [each for b in plain.blocks for each in (b.attention.output, b.mlp.down)]
        norms = [each for b in plain.blocks for each in (b.norm1, b.norm2)] + [plain.norm]
        product = 1.0
        for layer, state, size in zip(layers, states, sizes, strict=True):
            product *= state
            layer.weight.mul_(size / product)
        wrong = (plain(tokens) - gated(tokens)).abs().max()
        product = 1.0
        for norm, state in zip(norms, (*states, 1.0), strict=True):
            norm.eps /= product**2
            product *= state
        assert (plain(tokens) - gated(tokens)).abs().max() <= 1e-12
    assert wrong > 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_a_cache_and_generation_stay_right(name: str) -> None:
    pytest.importorskip("transformers")
    plain = attnlab.create("transformers:llama", 50, **LLAMA).double().eval()
    tokens = torch.randint(50, (2, 12))
    gated = away(attnlab.insert(plain, name, example=tokens)[0], plain)
    with torch.no_grad():
        whole = gated(tokens).logits
        first = gated(tokens[:, :7], use_cache=True)
        rest = gated(tokens[:, 7:], past_key_values=first.past_key_values, use_cache=True)
    torch.testing.assert_close(torch.cat([first.logits, rest.logits], 1), whole)
    mask = torch.ones_like(tokens)  # else tokens that are 0 would be taken for padding
    settings = {"max_new_tokens": 8, "do_sample": False, "attention_mask": mask}
    found = [gated.generate(tokens, use_cache=cache, **settings) for cache in (True, False)]
    assert found[0].shape == (2, 20)
    assert torch.equal(*found)
    greedy = tokens
    with torch.no_grad():
        for _ in range(8):
            greedy = torch.cat([greedy, gated(greedy).logits[:, -1:].argmax(2)], 1)
    assert torch.equal(found[0], greedy)


@pytest.mark.parametrize("name", NAMES)
def test_vision_transformers_take_them(name: str) -> None:
    plain = attnlab.create("timm:test_vit").eval()
    gated, receipt = attnlab.insert(plain, name, start="identity", place="branch")
    images = torch.randn(1, 3, 160, 160)
    with torch.no_grad():
        torch.testing.assert_close(gated(images), plain(images), rtol=0, atol=1e-5)
        moved = away(gated, plain)(images)
        assert (moved - plain(images)).abs().max() > 1e-3
    assert len(receipt.sites) == len(attnlab.steps(plain))


def test_an_exported_decoder_has_its_gates() -> None:
    plain = attnlab.create("decoder", **SMALL).eval()
    tokens = torch.randint(256, (2, 12))
    gated = away(attnlab.insert(plain, "token", example=tokens)[0], plain)
    exported = torch.export.export(gated, (tokens,)).module()
    with torch.no_grad():
        torch.testing.assert_close(exported(tokens), gated(tokens))


def test_a_gate_that_pools_is_still_refused() -> None:
    plain = attnlab.create("decoder", **SMALL)
    with pytest.raises(SiteError, match="the future would leak into every earlier position"):
        attnlab.insert(plain, "se")


def test_wrong_options_and_shapes() -> None:
    with pytest.raises(OptionError, match="Expected read to be at least 1 channel but got 0"):
        build_gate("token", 8, read=0)
    with pytest.raises(OptionError, match="Expected factor to be a number above 0 but got -1"):
        build_gate("token", 8, factor=-1.0)
    with pytest.raises(OptionError, match="For a start at 0 take the gate 'rezero'"):
        build_gate("scale", 8, initial=0.0)
    with pytest.raises(InputError, match=r"the shortcut is \(2, 4, 5\) and the branch \(2, 8, 5\)"):
        build_gate("token", 8)(torch.randn(2, 4, 5), torch.randn(2, 8, 5))
