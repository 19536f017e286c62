"""Folds of constant gates in language models: norms after the branch, experts, casts to float32."""

from __future__ import annotations

import pytest
import torch
import transformers
from torch import Tensor, nn

import attnlab
from attnlab._errors import FoldError
from attnlab.surgery.insertion import attachments

SIZES = {
    "vocab_size": 50,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
}
TEXT = {"input_ids": torch.arange(2, 11)[None]}
OTHER = {"input_ids": torch.arange(40, 5, -1)[None].repeat(3, 1)}


def gemma2() -> nn.Module:
    return transformers.Gemma2Model(transformers.Gemma2Config(**SIZES))


def gemma3() -> nn.Module:
    return transformers.Gemma3TextModel(transformers.Gemma3TextConfig(**SIZES))


def qwen3_moe() -> nn.Module:
    experts = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    config = transformers.Qwen3MoeConfig(**SIZES, **experts, decoder_sparse_step=1)
    return transformers.Qwen3MoeModel(config)


def gated(build) -> nn.Module:
    """With constant gates as if trained, and norms that are not at their start."""
    torch.manual_seed(0)
    plain = build().eval()
    with torch.no_grad():
        for name, parameter in plain.named_parameters():
            if "norm" in name:
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
    network, _ = attnlab.insert(plain, "asr:se", example=TEXT, activation="sigmoid")
    torch.manual_seed(1)
    with torch.no_grad():
        for _, attachment in attachments(network):
            for parameter in attachment.parameters():
                parameter.normal_(std=0.7)
    return network


def answer(network: nn.Module, text: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        return network(**text).last_hidden_state


@pytest.mark.parametrize("build", [gemma2, gemma3, qwen3_moe])
def test_all_gates_go_and_other_texts_are_answered_alike(build):
    network = gated(build)
    folded, receipt = attnlab.fold(network, example=TEXT)
    assert not list(attachments(folded))
    # The other text reaches experts that the example did not.
    for text in (TEXT, OTHER):
        torch.testing.assert_close(
            answer(folded, text), answer(network, text), rtol=1e-4, atol=1e-5
        )
    plain = build()
    assert folded.state_dict().keys() == plain.state_dict().keys()
    if build is not qwen3_moe:
        assert "checked to 1e-05, because the network casts to float32 inside" in receipt.notes


@pytest.mark.parametrize("build", [gemma2, gemma3])
def test_a_norm_that_adds_one_to_its_weight_takes_the_gate_beside_the_one(build):
    network = gated(build)
    folded, _ = attnlab.fold(network, example=TEXT)
    for name, attachment in attachments(network):
        norm = attachment.site.module
        weight = network.get_parameter(f"{norm}.weight")
        gate = attachment.constant().to(weight)
        expected = gate * (1 + weight) - 1
        torch.testing.assert_close(folded.get_parameter(f"{norm}.weight"), expected, msg=name)


def test_experts_take_the_gate_all_alike():
    network = gated(qwen3_moe)
    folded, _ = attnlab.fold(network, example=TEXT)
    name = "layers.0.mlp.experts.down_proj"
    (gate,) = (
        each.constant() for _, each in attachments(network) if each.site.module == "layers.0.mlp"
    )
    expected = network.get_parameter(name) * gate.float()[None, :, None]
    torch.testing.assert_close(folded.get_parameter(name), expected)


def mamba(layers: int = 1) -> nn.Module:
    torch.manual_seed(0)
    config = transformers.MambaConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=layers, state_size=4
    )
    return transformers.MambaModel(config).eval()


def test_a_state_space_model_folds_at_every_step():
    network, _ = attnlab.insert(mamba(2), "asr:se", example=TEXT)
    folded, receipt = attnlab.fold(network, example=TEXT)
    assert len(receipt.sites) == 2
    assert list(attachments(folded)) == []


class Mixer(nn.Module):
    """Multiplies what it is given by an activation of the same values."""

    def forward(self, x: Tensor) -> Tensor:
        shifted = x.flip(1)
        return shifted * torch.tanh(shifted)


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mixer = Mixer()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mixer(x)


def test_what_stops_a_fold_is_named_by_its_layer():
    images = torch.randn(2, 8, 4, 4)
    network, _ = attnlab.insert(Mixed().eval(), "asr:se", example=images)
    with pytest.raises(FoldError) as error:
        attnlab.fold(network, example=images)
    assert "flip in 'mixer' is also read by tanh in 'mixer'" in str(error.value)


class Cast(nn.Module):
    """A branch whose product passes float32, whatever the network's precision."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.outer(torch.tanh(self.inner(x).float()).to(x.dtype)).float().to(x.dtype)


def test_a_network_that_casts_is_judged_by_what_it_resolves():
    torch.manual_seed(0)
    images = torch.randn(2, 8, 4, 4)
    network, _ = attnlab.insert(nn.Sequential(Cast(), Cast()).eval(), "asr:se", example=images)
    folded, receipt = attnlab.fold(network, example=images)
    torch.testing.assert_close(folded(images), network(images))
    assert any("casts to float32 inside" in note for note in receipt.notes)


class Routed(nn.Module):
    """A step whose branch is made by the experts that a router chooses, row by row."""

    def __init__(self, experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(6, experts)
        self.experts = nn.ModuleList(nn.Linear(6, 6) for _ in range(experts))

    def forward(self, tokens: Tensor) -> Tensor:
        chosen = self.router(tokens).argmax(-1)
        total = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero()[:, 0]
            if len(rows):
                total.index_add_(0, rows, expert(tokens[rows]))
        return tokens + total


def test_every_expert_takes_the_gate_or_none() -> None:
    torch.manual_seed(0)
    network = Routed(3).double()
    tokens = torch.randn(40, 6).double()
    chosen = network.router(tokens).argmax(-1)
    assert set(chosen.tolist()) == {0, 1, 2}
    gated, _ = attnlab.insert(network, "asr:se", example=tokens)
    folded, receipt = attnlab.fold(gated, example=tokens)
    assert {name for row in receipt.rows for name in row.into} == {
        f"experts.{number}.{kind}" for number in range(3) for kind in ("weight", "bias")
    }
    others = torch.randn(50, 6).double()
    with torch.no_grad():
        torch.testing.assert_close(folded(others), gated(others), rtol=1e-12, atol=1e-12)
    few = tokens[chosen != 2]  # on these the third expert does not run, elsewhere it does
    with pytest.raises(FoldError, match="the example reaches only some experts of the network"):
        attnlab.fold(gated, example=few)


class RoutedByMask(nn.Module):
    """The same by a mask, with an expert that hands its rows on (LongCat's identities): no
    parameter of it could take a gate. The mask has a class that is never chosen, as
    transformers' masks have."""

    def __init__(self, experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(6, experts + 1)
        self.experts = nn.ModuleList([*(nn.Linear(6, 6) for _ in range(experts)), nn.Identity()])

    def forward(self, tokens: Tensor) -> Tensor:
        chosen = self.router(tokens).topk(1).indices[:, 0]
        mask = nn.functional.one_hot(chosen, num_classes=len(self.experts) + 1)
        total = torch.zeros_like(tokens)
        for number in mask.sum(0).nonzero()[:, 0].tolist():
            rows = mask[:, number].nonzero()[:, 0]
            total.index_add_(0, rows, self.experts[number](tokens[rows]))
        return tokens + total


def test_an_expert_without_parameters_that_the_example_does_not_reach() -> None:
    torch.manual_seed(0)
    network = RoutedByMask(2).double()
    tokens = torch.randn(60, 6).double()
    chosen = network.router(tokens).argmax(-1)
    assert set(chosen.tolist()) == {0, 1, 2}
    few = tokens[chosen != 2]  # on these all parameters are read, and a fold of them is exact
    gated, _ = attnlab.insert(network, "asr:se", example=few)
    with pytest.raises(FoldError, match="the example reaches only some experts of the network"):
        attnlab.fold(gated, example=few)
    with pytest.raises(FoldError, match="is also read by"):  # x goes to the router as well
        attnlab.fold(gated, example=tokens)


@pytest.mark.parametrize("implementation", ["eager", "batched_mm"])
def test_experts_of_mixtral_fold(implementation) -> None:
    torch.manual_seed(0)
    config = transformers.MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2)
    network = transformers.MixtralModel(config).eval()
    network.set_experts_implementation(implementation)
    gated, _ = attnlab.insert(network, "asr:se", example=TEXT)
    folded, receipt = attnlab.fold(gated, example=TEXT)
    assert not receipt.kept
    assert "layers.0.mlp.experts.down_proj" in receipt.rows[1].into
    # Tokens that the example had not, so that other experts are chosen.
    torch.testing.assert_close(answer(folded, OTHER), answer(gated, OTHER), rtol=1e-4, atol=1e-5)


class Nested(nn.Module):
    """A step whose branch ends in another step, as Gemma 3n's."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(6, 6), nn.Linear(6, 6), nn.LayerNorm(6)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.first(x)
        return x + (inner + self.norm(self.second(inner)))


def test_gates_of_nested_steps_go_into_the_same_norm() -> None:
    torch.manual_seed(0)
    tokens = torch.randn(4, 5, 6).double()
    plain = nn.Sequential(Nested(), Nested()).double().eval()
    network, _ = attnlab.insert(plain, "asr:se", example=tokens)
    with torch.no_grad():
        for _, attachment in attachments(network):
            for parameter in attachment.parameters():
                parameter.add_(torch.randn_like(parameter))
    assert len(list(attachments(network))) == 4
    folded, receipt = attnlab.fold(network, example=tokens)
    taken = [name for row in receipt.rows for name in row.into]
    assert taken.count("0.norm.weight") == 2
    with torch.no_grad():
        torch.testing.assert_close(folded(tokens), network(tokens), rtol=1e-12, atol=1e-12)
