# ruff: noqa: ARG005  (hooks are given more than they use)
"""The parts of steps on inputs: gates and gains against hooks by hand."""

from __future__ import annotations

from math import isnan

import pytest
import torch
from tests.residuals import streams
from torch import Tensor, nn

import attnlab
from attnlab._errors import InputError, StepsNotFoundError
from attnlab.instruments.forms import CarryGains, StepsResult
from attnlab.residuals.watching import watching
from attnlab.surgery.insertion import attachments


@pytest.fixture(scope="module")
def hyper() -> nn.Module:
    return streams.glm5_next().double()


def matrices_by_hand(model: nn.Module, batches: list[dict[str, Tensor]]) -> list[list[Tensor]]:
    """What carries the streams, step by step, for each batch."""
    found: list[list[Tensor]] = []
    modules = [m for name, m in model.named_modules() if name.endswith("_hc")]
    hooks = [
        m.register_forward_hook(lambda m, i, output: found[-1].append(output[1].mT))
        for m in modules
    ]
    for batch in batches:
        found.append([])
        with torch.no_grad():
            model(**batch)
    for hook in hooks:
        hook.remove()
    return found


def test_gains_by_hand(hyper: nn.Module) -> None:
    batches = [streams.tokens(3, 8), {"input_ids": streams.tokens(3, 8)["input_ids"].flip(1)}]
    by_hand = matrices_by_hand(hyper, batches)
    gains = CarryGains(steps := attnlab.steps(hyper, batches[0]))
    with torch.no_grad(), watching(hyper, gains, batches[0]):
        for batch in batches:
            hyper(**batch)
    for number, step in enumerate(steps):
        own = [torch.linalg.svdvals(run[number].double()).max() for run in by_hand]
        assert gains.gain[step.key] == pytest.approx(float(max(own)), rel=1e-12)
        products = []
        for run in by_hand:
            product = torch.eye(4, dtype=torch.float64)
            for each in run[: number + 1]:
                product = each.double() @ product
            products.append(torch.linalg.svdvals(product).max())
        assert gains.gain_to_here[step.key] == pytest.approx(float(max(products)), rel=1e-12)
        # Doubly stochastic, as far as Sinkhorn's iterations got.
        assert 1 - 1e-4 < gains.gain_to_here[step.key] < 1 + 1e-4


class Decay(nn.Module):
    """Three steps that keep 0.9 of the state."""

    def __init__(self, kept: float = 0.9, width: int = 4) -> None:
        super().__init__()
        self.kept = kept
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.kept * x + torch.tanh(layer(x))
        return x


def test_gains_of_numbers() -> None:
    found = attnlab.describe_steps(Decay(), [torch.randn(8, 4)])
    assert [step.gain for step in found.steps] == pytest.approx([0.9] * 3)
    assert [step.gain_to_here for step in found.steps] == pytest.approx([0.9, 0.81, 0.729])
    assert found.steps[0].formula == "0.9 X + f(X)"


@pytest.mark.parametrize("kept", [0.9, -0.9])
def test_gains_begin_anew_with_every_stage(kept: float) -> None:
    network = nn.Sequential(Decay(kept), nn.Linear(4, 6), Decay(kept, 6))
    found = attnlab.describe_steps(network, [torch.randn(8, 4)])
    assert [step.stage for step in found.steps] == [1, 1, 1, 2, 2, 2]
    assert [step.gain for step in found.steps] == pytest.approx([0.9] * 6)
    assert [step.gain_to_here for step in found.steps] == pytest.approx([0.9, 0.81, 0.729] * 2)


def test_a_projection_has_no_gain() -> None:
    network = attnlab.create("resnet20", num_classes=10)
    found = attnlab.describe_steps(network, [torch.randn(2, 3, 32, 32)])
    forms = [step.formula for step in found.steps]
    assert (forms.count("X + f(X)"), forms.count("P(X) + f(X)")) == (7, 2)
    assert [isnan(step.gain_to_here) for step in found.steps] == [False] * 3 + [True] * 6


def test_gates_over_inputs(hyper: nn.Module) -> None:
    """Mean over tokens, spread over inputs: by the values that the hyper-connection returned."""
    batch = streams.tokens(9, 8)
    found = attnlab.describe_steps(hyper, [batch])
    post: list[Tensor] = []
    hook = hyper.get_submodule("layers.1.ffn_hc").register_forward_hook(
        lambda module, given, output: post.append(output[0])
    )
    with torch.no_grad():
        hyper(**batch)
    hook.remove()
    (gate,) = [g for g in found.steps[3].gates if g.role == "write"]
    means = post[0].double().mean(1)
    assert gate.mean == pytest.approx(float(means.mean()), rel=1e-12)
    assert gate.spread == pytest.approx(float(means.std(0, correction=0).mean()), rel=1e-9)
    assert (gate.numbers, gate.name) == (4, "layers.1.ffn_hc:write")
    assert found.steps[3].read == "a row over 4 streams"


def test_padding_does_not_count() -> None:
    """Gated attention of padded tokens, by what its projection returns for the others."""
    model, tokens = streams.qwen3_next().double(), streams.tokens(2, 8)["input_ids"]
    mask = torch.tensor([[1] * 8, [1] * 5 + [0] * 3])
    batch = {"input_ids": tokens, "attention_mask": mask}
    (step,) = [s for s in attnlab.describe_steps(model, [batch]).steps if s.gates]
    projected: list[Tensor] = []
    attention = model.get_submodule("model.layers.1.self_attn")
    hook = attention.get_submodule("q_proj").register_forward_hook(
        lambda module, given, output: projected.append(output)
    )
    with torch.no_grad():
        model(**batch)
    hook.remove()
    gates = projected[0].view(2, 8, 4, 16)[..., 8:].flatten(2).sigmoid()
    means = torch.stack([gates[0].mean(0), gates[1, :5].mean(0)])
    assert step.gates[0].mean == pytest.approx(float(means.mean()), rel=1e-12)
    assert step.gates[0].spread == pytest.approx(float(means.std(0, correction=0).mean()), rel=1e-9)


def test_an_inserted_gate_over_several_batches() -> None:
    """Its values for each image, kept by a hook: over channels and images."""
    torch.manual_seed(0)
    network, _ = attnlab.insert(attnlab.create("resnet20", num_classes=10).eval(), "se")
    images = torch.randn(9, 3, 32, 32)
    found = attnlab.describe_steps(network, [images[:5], images[5:]], name="mine")
    assert (found.inputs, found.network) == (9, "mine")
    kept: list[Tensor] = []
    gate = next(iter(attachments(network)))[1].gate_module
    gate.register_forward_hook(lambda module, given, output: kept.append(output))
    with torch.no_grad():
        network(images)
    values = kept[0].double().flatten(1)
    (own,) = found.steps[0].gates
    assert (own.role, own.numbers) == ("size", 16)
    assert own.mean == pytest.approx(float(values.mean()), rel=1e-5)
    assert own.smallest == pytest.approx(float(values.min()), rel=1e-5)
    assert own.largest == pytest.approx(float(values.max()), rel=1e-5)
    assert own.spread == pytest.approx(float(values.std(0, correction=0).mean()), rel=1e-3)


def test_inserted_gates_and_the_file() -> None:
    network, _ = attnlab.insert(attnlab.create("resnet20", num_classes=10), "se")
    found = attnlab.describe_steps(network, [torch.randn(9, 3, 32, 32)])
    assert {step.formula for step in found.steps} == {"X + Δt f(X)", "P(X) + Δt f(X)"}
    assert all([gate.kind for gate in step.gates] == ["inserted"] for step in found.steps)
    again = StepsResult.from_json(found.to_json())
    assert again.to_json() == found.to_json()
    assert "9 multipliers" in found.verdict


def test_messages() -> None:
    with pytest.raises(StepsNotFoundError, match=r"^Linear has no residual step\. Looked for "):
        attnlab.describe_steps(nn.Linear(4, 4), [torch.randn(2, 4)])
    with pytest.raises(InputError, match=r"^Expected a loader with at least one batch but got an "):
        attnlab.describe_steps(Decay(), [])


def test_sixty_four_of_its_own_images_are_looked_at() -> None:
    found = attnlab.describe_steps(attnlab.open("resnet20", "digits"))
    assert found.inputs == 64
    assert attnlab.describe_steps(attnlab.open("resnet20", "digits", limit=3)).inputs == 3
    assert {(step.read, step.write) for step in found.steps} == {("X", "X")}
