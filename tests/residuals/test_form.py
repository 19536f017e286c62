# ruff: noqa: ARG005  (hooks are given more than they use)
"""What steps are made of: against the code of the networks, and values against hooks by hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from tests.residuals import streams
from torch import Tensor, nn

import attnlab
from attnlab._errors import InputError
from attnlab.residuals import Observer, SeenGate
from attnlab.residuals.watching import watching


class Block(nn.Module):
    """A step whose branch ends as `end` says."""

    def __init__(self, end: str) -> None:
        super().__init__()
        self.layer, self.after, self.gate = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)
        self.scale = nn.Parameter(torch.rand(6))
        self.alpha = nn.Parameter(torch.rand(()))
        self.end = end

    def forward(self, x: Tensor) -> Tensor:
        f = torch.tanh(self.layer(x))
        forms = {
            "plain": lambda: x + f,
            "half": lambda: x + 0.5 * f,
            "divided": lambda: x + f / 4,
            "minus": lambda: x - f,
            "layer scale": lambda: x + self.scale * f,
            "rezero": lambda: x + f * self.alpha,
            "gate": lambda: x + 2 * (f * torch.sigmoid(self.gate(x))),
            "double sigmoid": lambda: x + f * (2 * self.gate(x).sigmoid()),
            "inside": lambda: x + self.after(f * torch.sigmoid(self.gate(x))),
            "a part": lambda: x + self.after(f * torch.sigmoid(self.gate(x)) + f.relu()),
            "swish": lambda: x + self.after(f * torch.sigmoid(1.702 * f)),
            "swiglu": lambda: x + self.after(f * nn.functional.silu(self.gate(x))),
            "less": lambda: 0.9 * x + self.after(torch.tanh(self.layer(x))),
        }
        return forms[self.end]()


FORMS = {
    "plain": "X + f(X)",
    "half": "X + 0.5 f(X)",
    "divided": "X + 0.25 f(X)",
    "minus": "X - f(X)",
    "layer scale": "X + γ f(X)",
    "rezero": "X + γ f(X)",
    "gate": "X + 2 g f(X)",
    "double sigmoid": "X + g f(X)",
    "inside": "X + f°(X)",
    "a part": "X + f(X)",
    "swish": "X + f(X)",
    "swiglu": "X + f(X)",
    "less": "0.9 X + f(X)",
}


@pytest.mark.parametrize(("end", "formula"), FORMS.items())
def test_formula(end: str, formula: str) -> None:
    torch.manual_seed(0)
    (step,) = attnlab.steps(Block(end), torch.randn(3, 5, 6))
    assert str(step.form) == formula


def test_names_and_shapes_of_constants() -> None:
    (scaled,) = attnlab.steps(Block("layer scale"), torch.randn(3, 5, 6))
    (multiplier,) = scaled.form.multipliers
    assert (multiplier.role, multiplier.name, multiplier.shape) == ("size", "scale", (6,))
    (gated,) = attnlab.steps(Block("double sigmoid"), torch.randn(3, 5, 6))
    (gate,) = gated.form.multipliers
    assert (gate.role, gate.numbers) == ("size", 6)


class Values(Observer):
    """Keeps the gates that it is told of."""

    sees_products = True

    def __init__(self) -> None:
        self.values: dict[str, Tensor] = {}

    def gate_seen(self, seen: SeenGate) -> None:
        self.values[seen.gate.name] = seen.value.clone()


@pytest.mark.parametrize("end", ["gate", "double sigmoid", "inside"])
def test_gates_by_hand(end: str) -> None:
    torch.manual_seed(0)
    block, x = Block(end).double(), torch.randn(3, 5, 6, dtype=torch.double)
    seen = Values()
    with watching(block, seen, x[:1]):
        block(x)
    (value,) = seen.values.values()
    factor = 2 if end == "double sigmoid" else 1
    assert torch.equal(value, factor * torch.sigmoid(block.gate(x)))


class Halved(Observer):
    """Puts half of it in the place of every gate."""

    sees_products = True

    def gate_seen(self, seen: SeenGate) -> Tensor:
        return seen.value / 2


def test_a_told_value_is_taken() -> None:
    torch.manual_seed(0)
    block, x = Block("gate").double(), torch.randn(3, 5, 6, dtype=torch.double)
    before = block(x)
    with watching(block, Halved(), x[:1]):
        half = block(x)
    assert torch.allclose(half - x, (before - x) / 2, atol=1e-14)
    assert torch.equal(block(x), before)


class Loop(nn.Module):
    """Makes as many products as its input has tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.gate = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        f = self.layer(x)
        for place in range(x.shape[1]):
            f = f * (1 + place)
        return x + f * torch.sigmoid(self.gate(x))


def test_another_path_is_refused() -> None:
    model = Loop()
    with (
        pytest.raises(InputError, match="does not multiply as it did on the example"),
        watching(model, Values(), torch.randn(1, 2, 6)),
    ):
        model(torch.randn(1, 3, 6))


@pytest.fixture(scope="module")
def language() -> dict[str, nn.Module]:
    return {
        "qwen4_exp": streams.qwen4_exp(),
        "glm5_next": streams.glm5_next(),
        "deepseek_v4": streams.deepseek_v4(),
        "hy_v4": streams.hy_v4(),
    }


STREAMED = {
    "qwen4_exp": (2, -1, {"X + w f(r X)", "X + w f°(r X)"}),
    "glm5_next": (4, 2, {"C X + w f(r X)", "C X + w f°(r X)"}),
    "deepseek_v4": (4, 2, {"C X + w f(r X)"}),
    "hy_v4": (4, 2, {"X + w f(r X)", "X + w f°(r X)"}),
}


@pytest.mark.parametrize("family", STREAMED)
def test_streams(language: dict[str, nn.Module], family: str) -> None:
    number, axis, forms = STREAMED[family]
    found = attnlab.steps(language[family], streams.tokens())
    assert len(found) == 4
    assert {str(step.form) for step in found} == forms
    assert {(step.form.streams, step.form.stream_axis) for step in found} == {(number, axis)}
    # Gates act on channels, not on streams; and the steps are one trajectory.
    assert {step.channels for step in found} == {64 if family == "qwen4_exp" else 32}
    assert {step.stage for step in found} == {1}


@pytest.mark.parametrize("family", ["glm5_next", "deepseek_v4"])
def test_matrices_by_hand(language: dict[str, nn.Module], family: str) -> None:
    """post, comb and what is read, by hooks on the hyper-connections."""
    model, example = language[family], streams.tokens()
    returned: dict[str, Any] = {}
    hooks = [
        module.register_forward_hook(
            lambda module, given, output, name=name: returned.update({name: output})
        )
        for name, module in model.named_modules()
        if name.endswith("_hc")
    ]
    seen = Values()
    with torch.no_grad(), watching(model, seen, example):
        model(**example)
    for hook in hooks:
        hook.remove()
    assert len(returned) == 4
    for name, (post, comb, _) in returned.items():
        assert torch.equal(seen.values[f"{name}:write"], post.unsqueeze(-1))
        assert torch.equal(seen.values[f"{name}:carry"], comb.transpose(-1, -2))


@pytest.mark.parametrize(
    ("make", "factor"),
    [
        (partial(streams.tiny, "granite", residual_multiplier=0.22), 0.22),
        (partial(streams.minicpm3, scale_depth=1.4), 1.4 / 2**0.5),
    ],
)
def test_constant_factors(make: Callable[[], nn.Module], factor: float) -> None:
    found = attnlab.steps(make(), streams.tokens())
    assert len(found) == 4
    assert all(step.form.factor == pytest.approx(factor) for step in found)


def test_gated_attention_is_seen_and_experts_are_not() -> None:
    """Qwen3-Next: the gate of full attention; not those of routing and of the shared expert."""
    found = attnlab.steps(streams.qwen3_next(), streams.tokens())
    inside = {each.name for step in found for each in step.form.multipliers}
    assert inside == {"model.layers.1.self_attn"}
