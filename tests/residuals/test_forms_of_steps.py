# ruff: noqa: ARG001, ARG005  (all forms take the same three tensors)
"""Steps that are written in other ways than `x + f(x)`: with a sign, a factor, a weighted mean, or
in two halves that update each other."""

from __future__ import annotations

import pytest
import torch
import transformers
from torch import Tensor, nn

import attnlab
from attnlab._errors import StepsNotFoundError
from attnlab.residuals import SeenGate
from attnlab.residuals.watching import Observer, SeenStep, watching
from attnlab.surgery.insertion import attachments

IMAGES = torch.randn(2, 8, 6, 6, dtype=torch.double, generator=torch.Generator().manual_seed(5))


def minus(x: Tensor, f: Tensor, scale: Tensor) -> Tensor:
    return x - f


def subtracted(x: Tensor, f: Tensor, scale: Tensor) -> Tensor:
    return torch.sub(x, f, alpha=0.5)


def minus_in_place(x: Tensor, f: Tensor, scale: Tensor) -> Tensor:
    state = x.clone()
    state.sub_(f)
    return state


def minus_is(x: Tensor, f: Tensor, scale: Tensor) -> Tensor:
    state = x.clone()
    state -= f
    return state


def alpha(x: Tensor, f: Tensor, scale: Tensor) -> Tensor:
    return torch.add(x, f, alpha=0.25)


def product(x: Tensor, f: Tensor, scale: Tensor) -> Tensor:
    return torch.addcmul(x, f, scale, value=2.0)


def product_reversed(x: Tensor, f: Tensor, scale: Tensor) -> Tensor:
    return torch.addcmul(x, scale, f)


def between(x: Tensor, f: Tensor, scale: Tensor) -> Tensor:
    return torch.lerp(x, f, 0.3)


def python_sum(x: Tensor, f: Tensor, scale: Tensor) -> Tensor:
    return sum([x, f])


# By hand: what each of them adds to x.
WRITTEN = {
    minus: lambda x, f, scale: -f,
    subtracted: lambda x, f, scale: -0.5 * f,
    minus_in_place: lambda x, f, scale: -f,
    minus_is: lambda x, f, scale: -f,
    alpha: lambda x, f, scale: 0.25 * f,
    product: lambda x, f, scale: 2.0 * f * scale,
    product_reversed: lambda x, f, scale: f * scale,
    between: lambda x, f, scale: 0.3 * (f - x),
    python_sum: lambda x, f, scale: f,
}


class Block(nn.Module):
    def __init__(self, form) -> None:
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3, padding=1)
        self.scale = nn.Parameter(torch.rand(8, 1, 1) + 0.5)
        self.form = form

    def forward(self, x: Tensor) -> Tensor:
        return self.form(x, torch.tanh(self.conv(x)), self.scale)


def network(form) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(8, 8, 1), Block(form), Block(form)).double().eval()


@pytest.mark.parametrize("form", WRITTEN, ids=lambda form: form.__name__)
def test_each_form_is_a_step_of_kind_identity(form):
    found = attnlab.steps(network(form), IMAGES)
    assert [(step.label, step.kind) for step in found] == [("1.0", "identity"), ("1.1", "identity")]


class Seen(Observer):
    def __init__(self) -> None:
        self.branches: list[Tensor] = []
        self.states: list[Tensor] = []

    def step_seen(self, seen: SeenStep) -> None:
        self.states.append(seen.shortcut.detach().clone())
        self.branches.append(seen.branch.detach().clone())


@pytest.mark.parametrize("form", WRITTEN, ids=lambda form: form.__name__)
def test_the_branch_has_its_sign_and_its_factor(form):
    model = network(form)
    with torch.no_grad(), watching(model, seen := Seen(), IMAGES):
        output = model(IMAGES)
    state = model[0](IMAGES)
    for block, shortcut, branch in zip(model[1:], seen.states, seen.branches, strict=True):
        added = WRITTEN[form](state, torch.tanh(block.conv(state)), block.scale)
        torch.testing.assert_close(shortcut, state)
        torch.testing.assert_close(branch, added)
        state = state + added
    torch.testing.assert_close(output, state)


@pytest.mark.parametrize("form", WRITTEN, ids=lambda form: form.__name__)
@pytest.mark.parametrize("gate", ["se", "step"])
def test_a_gate_multiplies_what_is_added(form, gate):
    model, _ = attnlab.insert(network(form), gate, example=IMAGES)
    gates = [attachment.gate_module for _, attachment in attachments(model)]
    state = model[0](IMAGES)
    for block, each in zip(model[1:], gates, strict=True):
        added = WRITTEN[form](state, torch.tanh(block.conv(state)), block.scale)
        value = each(added) if gate == "se" else each(state, added)
        state = state + added * value
    torch.testing.assert_close(model(IMAGES), state)


@pytest.mark.parametrize("form", WRITTEN, ids=lambda form: form.__name__)
def test_an_observer_replaces_the_branch(form):
    class Nothing(Observer):
        def step_seen(self, seen: SeenStep) -> Tensor:
            return torch.zeros_like(seen.branch)

    model = network(form)
    with torch.no_grad(), watching(model, Nothing(), IMAGES):
        output = model(IMAGES)
    torch.testing.assert_close(output, model[0](IMAGES))


def test_a_constant_gate_folds_through_the_sign():
    class Linear(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 1))

        def forward(self, x: Tensor) -> Tensor:
            return x - self.body(x)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(8, 8, 1), Linear()).double().eval()
    gated, _ = attnlab.insert(model, "asr:se", example=IMAGES)
    folded, _ = attnlab.fold(gated, example=IMAGES)
    assert not list(attachments(folded))
    torch.testing.assert_close(folded(IMAGES), gated(IMAGES), rtol=0, atol=1e-12)


class FactorThenGate(nn.Module):
    """Two steps in one forward: one with a factor, which no product is called for, and a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.gate = (nn.Conv2d(8, 8, 1) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.add(x, torch.tanh(self.first(x)), alpha=0.5)
        return x + torch.tanh(self.second(x)) * torch.sigmoid(self.gate(x))


def test_a_factor_is_not_counted_among_the_products_that_are_called():
    class Gates(Observer):
        sees_products = True

        def __init__(self) -> None:
            self.values: list[Tensor] = []

        def gate_seen(self, seen: SeenGate) -> None:
            self.values.append(seen.value.detach().clone())

    torch.manual_seed(0)
    block = FactorThenGate().double()
    model = nn.Sequential(nn.Conv2d(8, 8, 1).double(), block).eval()
    with torch.no_grad(), watching(model, gates := Gates(), IMAGES):
        model(IMAGES)
        state = model[0](IMAGES)
        state = state + 0.5 * torch.tanh(block.first(state))
        (value,) = gates.values
        torch.testing.assert_close(value, torch.sigmoid(block.gate(state)))


class Difference(nn.Module):
    """MogaNet's: what x has beyond its smooth part is added to x."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + 0.5 * torch.tanh(x - torch.tanh(self.conv(x)))


class Pooled(nn.Module):
    """PoolFormer's mixer: the second operand is the state."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(torch.tanh(self.conv(x)) - x)


def test_differences_that_are_no_states():
    assert len(attnlab.steps(nn.Sequential(nn.Conv2d(8, 8, 1), Difference()), IMAGES.float())) == 1
    with pytest.raises(attnlab._errors.StepsNotFoundError):
        attnlab.steps(nn.Sequential(nn.Conv2d(8, 8, 1), Pooled()), IMAGES.float())


class Reversible(nn.Module):
    """RevNet's: each half of the channels is updated by the other."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
            for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        one, two = x.chunk(2, dim=-1)
        one = one + self.first(two)
        two = two + self.second(one)
        return torch.cat([one, two], dim=-1)


def test_both_halves_of_reversible_blocks():
    tokens = torch.randn(2, 5, 4)
    model = nn.Sequential(nn.Linear(4, 16), Reversible(), Reversible())
    found = attnlab.steps(model, tokens)
    assert [step.name for step in found] == ["1", "1", "2", "2"]
    assert {step.kind for step in found} == {"identity"}
    assert [step.branch_modules[-1] for step in found] == [
        "1.first",
        "1.second",
        "2.first",
        "2.second",
    ]


class Positioned(nn.Module):
    """DAB-DETR's self-attention: query and key are content plus a position that was made before."""

    def __init__(self) -> None:
        super().__init__()
        self.content, self.position, self.value = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        query = self.content(x) + self.position(position)
        return x + torch.softmax(query @ query.mT, -1) @ self.value(x)


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.place = nn.Linear(4, 8), nn.Linear(8, 8)
        self.layers = nn.ModuleList([Positioned(), Positioned()])

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        position = self.place(x).sin()
        for layer in self.layers:
            x = layer(x, position)
        return x


def test_a_query_of_content_and_position_is_not_half_of_a_state():
    found = attnlab.steps(Layers(), torch.randn(2, 5, 4))
    assert [(step.name, step.kind) for step in found] == [
        ("layers.0", "identity"),
        ("layers.1", "identity"),
    ]


class Quantizer(nn.Module):
    """What the nearest code leaves of the state, as residual quantisers take it."""

    def __init__(self, scaled: bool) -> None:
        super().__init__()
        self.codes = nn.Parameter(torch.randn(7, 8))
        self.scaled = scaled

    def forward(self, x: Tensor) -> Tensor:
        nearest = (x @ self.codes.T - self.codes.square().sum(-1) / 2).argmax(-1)
        coded = nn.functional.embedding(nearest, self.codes)
        if self.scaled:
            coded = coded * x.sigmoid()
        return x - coded


def test_what_is_left_by_the_nearest_code_is_not_a_step():
    tokens = torch.randn(2, 5, 4)
    with pytest.raises(attnlab._errors.StepsNotFoundError):
        attnlab.steps(nn.Sequential(nn.Linear(4, 8), Quantizer(False)), tokens)
    # Where it also depends on the state's values, it is one.
    (step,) = attnlab.steps(nn.Sequential(nn.Linear(4, 8), Quantizer(True)), tokens)
    assert step.kind == "identity"


def test_reformer_and_mobilebert_take_all_their_steps():
    ids = {"input_ids": torch.arange(1, 17)[None]}
    reformer = transformers.ReformerModel(
        transformers.ReformerConfig(
            attn_layers=["local", "local"],
            hidden_size=16,
            num_attention_heads=2,
            attention_head_size=8,
            feed_forward_size=16,
            axial_pos_embds=False,
            max_position_embeddings=32,
            local_attn_chunk_length=8,
            vocab_size=50,
            is_decoder=False,
        )
    )
    assert [step.kind for step in attnlab.steps(reformer, ids)] == ["identity"] * 4
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    narrow = {"intra_bottleneck_size": 16, "embedding_size": 16, "true_hidden_size": 16}
    mobilebert = transformers.MobileBertModel(
        transformers.MobileBertConfig(
            vocab_size=50, intermediate_size=32, num_feedforward_networks=2, **sizes, **narrow
        )
    )
    kinds = [step.kind for step in attnlab.steps(mobilebert, ids)]
    assert kinds == ["projection", "identity", "identity", "identity"] * 2


class Streams(nn.Module):
    """A state of four streams: read by a row, carried by a matrix made from it, written to all."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.read = nn.Linear(4 * 8, 16), nn.Linear(4 * 8, 4)
        self.write, self.layer = nn.Linear(4 * 8, 4), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(2)
        carry = self.mix(flat).unflatten(-1, (4, 4)).softmax(-1)
        collapsed = (self.read(flat).sigmoid().unsqueeze(-1) * x).sum(2)
        update = torch.tanh(self.layer(collapsed))
        return self.write(flat).sigmoid().unsqueeze(-1) * update.unsqueeze(-2) + carry @ x


class Attended(nn.Module):
    """Attention whose values are added to once more: its values are not a state."""

    def __init__(self) -> None:
        super().__init__()
        self.keys, self.values, self.place = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        keys, values = self.keys(x), self.values(x)
        scores = (keys @ keys.transpose(-1, -2)).softmax(-1)
        return scores @ values + torch.tanh(self.place(values))


def test_a_matrix_made_from_the_streams_carries_them() -> None:
    torch.manual_seed(0)
    state = torch.randn(2, 5, 4, 8)
    network = nn.Sequential(Streams(), Streams())
    found = attnlab.steps(network, state)
    assert [(step.owner, step.kind) for step in found] == [("0", "mixed"), ("1", "mixed")]
    with pytest.raises(StepsNotFoundError):
        attnlab.steps(nn.Sequential(Attended()), torch.randn(2, 3, 5, 8))
