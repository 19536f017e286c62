"""Gates that language models bring along, or that were inserted for tokens, held at constants."""

from __future__ import annotations

import pytest
import torch
import transformers
from tests.residuals.streams import glm5_next, tokens
from torch import Tensor, nn

import attnlab
from attnlab.residuals import watchable
from attnlab.surgery.folding._own_gates import own_gates
from attnlab.surgery.insertion import attachments

HEADS, WIDE = 4, 8
BATCHES = [
    {"input_ids": torch.randint(1, 90, (16, 9), generator=torch.Generator().manual_seed(n))}
    for n in range(3)
]


def stirred(network: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in network.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(noise.to(parameter), alpha=0.1)
    return network.double().eval()


def gated_attention(kinds: tuple[str, ...] = ("linear_attention", "full_attention")) -> nn.Module:
    """Half of the query projection makes a gate for each channel of what the heads found."""
    torch.manual_seed(0)
    config = transformers.Qwen3NextConfig(
        vocab_size=99,
        hidden_size=24,
        num_hidden_layers=len(kinds),
        layer_types=list(kinds),
        num_attention_heads=HEADS,
        num_key_value_heads=2,
        head_dim=WIDE,
        intermediate_size=32,
        moe_intermediate_size=16,
        num_experts=4,
        num_experts_per_tok=2,
        shared_expert_intermediate_size=16,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        max_position_embeddings=64,
        use_cache=False,
    )
    network = transformers.Qwen3NextForCausalLM(config)
    network.set_experts_implementation("eager")
    return stirred(network)


def logits(network: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        return network(**batch).logits


def held_by_hand(attention: nn.Module, constant: Tensor) -> None:
    """The gates' half of the query projection answers with what a sigmoid makes `constant` of."""

    def hook(_module: nn.Module, _arguments: object, output: Tensor) -> Tensor:
        by_head = output.clone().unflatten(-1, (HEADS, 2 * WIDE))
        by_head[..., WIDE:] = constant.logit().view(HEADS, WIDE)
        return by_head.flatten(-2)

    attention.q_proj.register_forward_hook(hook)


def constant_of(folded: nn.Module, network: nn.Module) -> Tensor:
    """The constant that the columns of the output projection took; a sigmoid of zeros is 1/2."""
    ratio = folded.o_proj.weight / network.o_proj.weight
    torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio), rtol=1e-9, atol=0)
    return ratio[0].detach() / 2


def test_gated_attention_goes_into_its_output_projection(tmp_path) -> None:
    network = gated_attention()
    folded, receipt = attnlab.fold_budget(network, BATCHES, "all")
    (row,) = receipt.rows
    name = "model.layers.1.self_attn"
    assert row.into == (f"{name}.o_proj.weight",)
    assert row.silenced == (f"{name}.q_proj.weight",)
    assert f"0: {name}.q_proj.weight" in receipt.table().to_markdown()
    assert receipt.measured is not None
    assert receipt.measured > 0.01  # that of the answers, not of what experts select from

    attention = network.get_submodule(name)
    after = folded.get_submodule(name)
    rows = after.q_proj.weight.detach().view(HEADS, 2, WIDE, -1)
    assert not rows[:, 1].any()
    torch.testing.assert_close(
        rows[:, 0], attention.q_proj.weight.detach().view(HEADS, 2, WIDE, -1)[:, 0]
    )
    folded.save_pretrained(tmp_path)
    again = type(folded).from_pretrained(tmp_path, dtype=torch.float64).eval()
    again.set_experts_implementation("eager")
    assert torch.equal(logits(again, BATCHES[0]), logits(folded, BATCHES[0]))
    held_by_hand(attention, constant_of(after, attention))
    for batch in BATCHES:
        torch.testing.assert_close(
            logits(folded, batch), logits(network, batch), rtol=1e-12, atol=1e-12
        )


def by_least_squares(network: nn.Module, batches: list[dict[str, Tensor]]) -> Tensor:
    """E[g x²] / E[x²] over all tokens of every second input, by hooks on the two projections."""
    seen: dict[str, Tensor] = {}
    attention = network.model.layers[1].self_attn
    handles = [
        attention.q_proj.register_forward_hook(lambda _m, _a, y: seen.update(q=y)),
        attention.o_proj.register_forward_pre_hook(lambda _m, a: seen.update(o=a[0])),
    ]
    above, below = torch.zeros(HEADS * WIDE).double(), torch.zeros(HEADS * WIDE).double()
    for batch in batches:
        logits(network, batch)
        gate = seen["q"].unflatten(-1, (HEADS, 2, WIDE))[..., 1, :].sigmoid().flatten(-2)[::2]
        energy = (seen["o"][::2] / gate).square()
        above += (gate * energy).sum((0, 1))
        below += energy.sum((0, 1))
    for handle in handles:
        handle.remove()
    return above / below


def test_the_constant_is_that_of_least_squares_over_tokens() -> None:
    network = gated_attention()
    folded, _ = attnlab.fold_budget(network, BATCHES, "all")
    attention = network.model.layers[1].self_attn
    found = constant_of(folded.model.layers[1].self_attn, attention)
    torch.testing.assert_close(found, by_least_squares(network, BATCHES), rtol=1e-9, atol=0)


def test_padding_does_not_count() -> None:
    network = gated_attention(("full_attention", "full_attention"))
    padded = []
    for batch in BATCHES:
        tokens = nn.functional.pad(batch["input_ids"], (0, 5), value=7)
        mask = nn.functional.pad(torch.ones_like(batch["input_ids"]), (0, 5))
        padded.append({"input_ids": tokens, "attention_mask": mask})
    found = []
    for batches in (BATCHES, padded):
        folded, receipt = attnlab.fold_budget(network, batches, "all")
        pairs = zip(folded.model.layers, network.model.layers, strict=True)
        constants = [constant_of(after.self_attn, before.self_attn) for after, before in pairs]
        found.append((torch.stack(constants), [row.spread for row in receipt.rows]))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-9, atol=0)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-9, atol=0)


def test_a_budget_and_a_tolerance_keep_what_costs_more() -> None:
    network = gated_attention(("full_attention", "full_attention"))
    _, receipt = attnlab.fold_budget(network, BATCHES, 0.0)
    assert {row.kept for row in receipt.rows} == {"beyond the budget 0.0"}
    _, receipt = attnlab.fold_constants(network, BATCHES, tolerance=1e-3)
    assert all("its gate varies by" in row.kept for row in receipt.rows)
    folded, receipt = attnlab.fold_constants(network, BATCHES, tolerance=10)
    assert len(receipt.sites) == 2
    held_by_hand(
        network.model.layers[0].self_attn,
        constant_of(folded.model.layers[0].self_attn, network.model.layers[0].self_attn),
    )
    held_by_hand(
        network.model.layers[1].self_attn,
        constant_of(folded.model.layers[1].self_attn, network.model.layers[1].self_attn),
    )
    torch.testing.assert_close(
        logits(folded, BATCHES[0]), logits(network, BATCHES[0]), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("gate", ["head", "element", "token"])
def test_inserted_gates_for_tokens_are_held_at_their_means(gate) -> None:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=99,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        use_cache=False,
    )
    plain = stirred(transformers.LlamaForCausalLM(config))
    network, _ = attnlab.insert(plain, gate, example=BATCHES[0])
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for _, attachment in attachments(network):
            for parameter in attachment.parameters():
                noise = torch.randn(parameter.shape, generator=generator).to(parameter)
                parameter.add_(noise, alpha=0.3)
    folded, receipt = attnlab.fold_budget(network, BATCHES, "all")
    assert len(receipt.sites) == len(list(attachments(network)))
    assert folded.state_dict().keys() == plain.state_dict().keys()
    for row, (name, attachment) in zip(receipt.rows, attachments(network), strict=True):
        (into,) = row.into
        before, after = (net.get_parameter(into).detach() for net in (network, folded))
        inside = attachment.site.position == "inside"  # before the projection: its columns
        constant = (after / before)[0] if inside else (after / before)[:, 0]
        assert float(constant.std()) > 1e-4, name

        def held(_m: object, _a: object, value: Tensor, constant: Tensor = constant) -> Tensor:
            return constant.view(1, -1, *[1] * (value.dim() - 2)).expand(
                len(value), -1, *value.shape[2:]
            )

        attachment.gate_module.register_forward_hook(held)
    torch.testing.assert_close(
        logits(folded, BATCHES[1]), logits(network, BATCHES[1]), rtol=1e-12, atol=1e-12
    )


class Twice(nn.Module):
    """A step that reads its gate in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.layer = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate(x))
        return x + gate * self.layer(x * gate.mean(-1, keepdim=True))


class Once(Twice):
    def forward(self, x: Tensor) -> Tensor:
        return x + self.layer(x) * (0.5 + 2 * torch.sigmoid(self.gate(x)))


def test_a_gate_that_is_read_elsewhere_stays() -> None:
    torch.manual_seed(0)
    states = [torch.randn(40, 5, 6).double()]
    _, receipt = attnlab.fold_budget(Twice().double().eval(), states, "all")
    (row,) = receipt.rows
    assert row.kept == "its gate is read elsewhere as well, where it must stay what it is"


def test_a_gate_at_the_end_of_a_branch_goes_into_the_layer_before() -> None:
    torch.manual_seed(0)
    states = [torch.randn(40, 5, 6).double()]
    network = Once().double().eval()
    folded, receipt = attnlab.fold_budget(network, states, "all")
    (row,) = receipt.rows
    assert set(row.into) == {"layer.weight", "layer.bias"}
    assert set(row.silenced) == {"gate.weight", "gate.bias"}
    # What is left of the gate is 0.5 + 2 σ(0).
    constant = 1.5 * folded.layer.bias / network.layer.bias
    with torch.no_grad():
        expected = states[0] + network.layer(states[0]) * constant
        torch.testing.assert_close(folded(states[0]), expected, rtol=1e-12, atol=1e-12)


def test_matrices_and_rows_over_streams_stay_with_their_reason() -> None:
    found = watchable(glm5_next(), tokens())
    reasons = {gate.multiplier.role: site.refusal for gate, site in own_gates(found)}
    assert reasons == {
        "carry": "it mixes or scales the state that is carried on, which is not a layer's output",
        "read": "it mixes streams into what the branch reads, before any of its layers",
        "write": "it hands the branch out to several streams, each with a gate of its own",
        "inside": "",
    }


class OfFunction(nn.Module):
    """A step whose branch passes a gate, which a function multiplies by, to its last layer."""

    def __init__(self, function) -> None:
        super().__init__()
        self.value, self.logits, self.out = (nn.Linear(8, 8) for _ in range(3))
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return x + self.out(self.function(self.value(x), self.logits(x)))


@pytest.mark.parametrize(
    ("function", "times", "reason"),
    [
        (lambda v, g: v * g.sigmoid(), 2, "it runs 2 times in one forward"),
        (
            lambda v, g: v * (g.sigmoid() + -0.5),
            1,
            "its logits cannot be made zero so that a constant is left",
        ),
        (lambda v, g: v[:, :1] * g.sigmoid(), 1, "it stretches what it multiplies"),
        (lambda v, g: v * g.sigmoid(), 1, ""),
        (lambda v, g: (g.sigmoid() * 2) * v, 1, ""),
    ],
)
def test_gates_for_which_a_constant_can_stand(function, times, reason) -> None:
    torch.manual_seed(0)
    block = OfFunction(function)
    network = nn.Sequential(nn.Linear(8, 8), *[block] * times).double().eval()
    batches = [torch.randn(3, 5, 8).double() for _ in range(2)]
    folded, receipt = attnlab.fold_constants(network, batches, tolerance=10.0)
    (row,) = receipt.rows
    assert row.kept == reason
    if reason:
        return
    logits = folded[1].logits
    assert not logits.weight.any()
    assert not logits.bias.any()
    tokens = torch.cat(batches).flatten(0, 1)
    with torch.no_grad():
        gate = network[1].logits(network[0](tokens)).sigmoid().mean(0)
    torch.testing.assert_close(folded[1].out.weight, network[1].out.weight * gate / 0.5)
