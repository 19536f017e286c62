"""ASR: gates of a learned vector."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import attnlab
from attnlab._errors import OptionError, UnknownNameError
from attnlab.gates import GATES, VISION_TRANSFORMER, LearnedVectorGate, VectorGate, build_gate

ON_VECTOR = [name for name, info in GATES.items() if info.on_vector]


def asr(spec: str, channels: int = 32, **options: object) -> LearnedVectorGate:
    gate = build_gate(spec, channels, **options)
    assert isinstance(gate, LearnedVectorGate)
    return gate.double()


def test_what_can_learn_a_vector() -> None:
    papers = {"se", "eca", "sem", "srm", "ie", "spa", "ese", "ge", "gc", "gct"}
    assert papers <= set(ON_VECTOR)
    assert not {"cbam", "fca", "sge", "dia", "step", "simam"} & set(ON_VECTOR)


@pytest.mark.parametrize("name", [name for name in ON_VECTOR if name != "srm"])
def test_constant_is_the_ordinary_gate_of_the_vector_as_a_map(name: str) -> None:
    gate = asr(f"asr:{name}")
    nn.init.normal_(gate.vectors[0].psi)
    ordinary = build_gate(name, 32, **GATES[name].vector_options).double()
    ordinary.load_state_dict(gate.vectors[0].attention.state_dict())
    expected = ordinary(gate.vectors[0].psi)
    torch.testing.assert_close(gate(torch.zeros(5, 32, 4, 4).double()), expected)
    torch.testing.assert_close(gate.constant(), expected[0, :, 0, 0])


def test_srm_of_a_vector_is_affine_with_fixed_statistics() -> None:
    gate = asr("asr:srm").train()
    with torch.no_grad():
        for parameter in gate.parameters():
            parameter.normal_()
    psi, module = gate.vectors[0].psi.flatten(), gate.vectors[0].attention
    style = module.style[:, 0] * psi + module.style[:, 1] * (1e-5**0.5)
    expected = 1 / (1 + torch.exp(-(module.norm.weight * style + module.norm.bias)))
    torch.testing.assert_close(gate.constant(), expected)
    assert module.norm.num_batches_tracked == 0


@pytest.mark.parametrize("name", ON_VECTOR)
def test_same_gate_for_every_input_and_mode(name: str) -> None:
    gate = asr(f"asr:{name}")
    first = gate.train()(torch.randn(4, 32, 5, 5).double())
    second = gate.eval()(torch.randn(1, 32, 1, 9).double())
    assert first.shape == (1, 32, 1, 1)
    assert torch.equal(first, second)


def test_delta_modules_are_independent_and_multiply() -> None:
    gate = asr("asr:se*3")
    parts = [vector(torch.sigmoid)[0] for vector in gate.vectors]
    torch.testing.assert_close(gate.constant(), parts[0] * parts[1] * parts[2])
    assert not torch.equal(parts[0], parts[1])


def test_vector_starts_at_one_tenth() -> None:
    gate = asr("asr:se")
    assert gate.vectors[0].psi.shape == (1, 32, 1, 1)
    torch.testing.assert_close(gate.vectors[0].psi.data.float(), torch.full((1, 32, 1, 1), 0.1))


WIDTHS = [(96, 1.0066e-3), (192, 1.0143e-3), (384, 1.0332e-3), (768, 1.0849e-3), (1024, 1.1295e-3)]


@pytest.mark.parametrize(("width", "value"), WIDTHS)
@pytest.mark.parametrize("spread", [0.0, 0.5])
def test_vision_transformer_start(width: int, value: float, spread: float) -> None:
    """W₁, b₁, W₂, b₂ and ψ at 1e-3: every hidden unit is D·1e-6 + 1e-3, and there are D/16."""
    gate = asr("asr:se", width, **VISION_TRANSFORMER, layer_spread=spread)
    hidden = width * 1e-6 + 1e-3
    closed = math.tanh(width / 16 * 1e-3 * hidden + 1e-3)
    assert closed == pytest.approx(value, rel=1e-4)
    constant = gate.constant()
    torch.testing.assert_close(constant, torch.full_like(constant, closed), rtol=1e-6, atol=0)


@pytest.mark.parametrize(("gate", "value"), [("ie", 1.001e-3), ("srm", 1e-3), ("spa", 1.935e-4)])
def test_vision_transformer_start_of_others(gate: str, value: float) -> None:
    constant = asr(f"asr:{gate}", 384, **VISION_TRANSFORMER).constant()
    torch.testing.assert_close(constant, torch.full_like(constant, value), rtol=1e-3, atol=0)


def trained_units(**options: object) -> torch.Tensor:
    """The hidden units of an inner SE, by their weights, after 20 steps towards a random gate."""
    torch.manual_seed(0)
    gate = asr("asr:se", 64, **{**VISION_TRANSFORMER, **options}).float()
    wanted = torch.rand(64)
    optimizer = torch.optim.AdamW(gate.parameters(), 1e-2)
    for _ in range(20):
        optimizer.zero_grad()
        (gate.constant() - wanted).square().mean().backward()
        optimizer.step()
    return gate.vectors[0].attention.excitation.fc1.weight.detach()


def test_equal_layers_stay_equal_for_ever_and_spread_ones_part() -> None:
    equal = trained_units()
    torch.testing.assert_close(equal, equal[:1].expand_as(equal), rtol=0, atol=1e-7)
    assert (equal - 1e-3).abs().max() > 1e-2  # they moved, all alike
    for options in ({"layer_spread": 0.5}, {"layer_initial": None}):
        units = trained_units(**options)
        units = units - units.mean(0)
        assert torch.linalg.matrix_rank(units, rtol=1e-3) == 3  # four units, less their mean


def test_spread_needs_what_it_is_a_share_of() -> None:
    with pytest.raises(OptionError) as error:
        asr("asr:se", layer_spread=0.5)
    assert str(error.value) == (
        "layer_spread is a share of layer_initial, which is not given: without it the layers keep "
        "their own random start. Leave layer_spread out."
    )


def test_a_gate_that_would_vanish_is_refused() -> None:
    with pytest.raises(OptionError) as error:
        asr("asr:se*2", 384, **VISION_TRANSFORMER)
    assert str(error.value) == (
        "ASR would start with a gate of 1.1e-06, a product of 2, where neither the branch nor any "
        "factor gets a gradient worth the name (below smallest=1e-05). Use fewer factors, "
        "activation='sigmoid' or layer_initial=None; smallest=0.0 builds it all the same."
    )
    built = asr("asr:se*2", 384, **VISION_TRANSFORMER, smallest=0.0).constant()
    torch.testing.assert_close(built, torch.full_like(built, 1.0332e-3**2), rtol=1e-3, atol=0)
    for options in ({"activation": "sigmoid"}, {"layer_initial": None}):
        assert (
            asr("asr:se*2", 384, **{**VISION_TRANSFORMER, **options}).constant().abs().max() > 1e-3
        )
    assert asr("asr:se*5").constant().mean() > 0.01


def test_tanh_cannot_start_as_the_identity() -> None:
    with pytest.raises(OptionError) as error:
        asr("asr:se", activation="tanh").start_constant()
    assert str(error.value) == (
        "ASR with activation='tanh' cannot start as the identity: its gate starts near 0. "
        "Use activation='sigmoid', or insert with start='paper' and train from scratch."
    )


def test_options_reach_the_module_and_asr() -> None:
    gate = asr("asr:se*2", reduction=8, initial=0.2)
    assert gate.vectors[1].attention.excitation.fc1.out_features == 4
    assert gate.vectors[1].psi.mean().item() == pytest.approx(0.2)


def test_unknown_activation_and_delta() -> None:
    with pytest.raises(UnknownNameError) as error:
        asr("asr:se", activation="tan")
    assert str(error.value) == (
        "Unknown activation of ASR 'tan'. Did you mean 'tanh'? Expected one of: sigmoid, tanh."
    )
    with pytest.raises(OptionError, match="delta to be at least 1 but got 0"):
        LearnedVectorGate(8, delta=0)


def test_a_module_keeps_its_own_last_function() -> None:
    gate = asr("asr:gct")
    with torch.no_grad():
        gate.vectors[0].attention.beta.fill_(0.5)
    torch.testing.assert_close(gate.constant(), 1 + torch.tanh(torch.full((32,), 0.5)).double())
    hard = asr("asr:ese", official=True)
    with torch.no_grad():
        hard.vectors[0].attention.fc.weight.zero_()
        hard.vectors[0].attention.fc.bias.fill_(1.5)
    torch.testing.assert_close(hard.constant(), torch.full((32,), 0.75).double())


def test_activation_takes_the_place_of_the_last_function() -> None:
    gate = asr("asr:gct", activation="tanh")
    with torch.no_grad():
        gate.vectors[0].attention.beta.fill_(0.5)
    torch.testing.assert_close(gate.constant(), torch.tanh(torch.full((32,), 0.5)).double())


def test_another_last_function_cannot_start_as_the_identity() -> None:
    assert asr("asr:gct").start_constant() == 1.0
    with pytest.raises(OptionError) as error:
        asr("asr:gct", activation="sigmoid").start_constant()
    assert str(error.value) == (
        "ASR with activation='sigmoid' cannot start as the identity here: "
        "GatedChannelTransformation ends in another function, and knows its first value with that "
        "one only. Leave activation out, or insert with start='paper'."
    )


def test_options_that_a_vector_leaves_no_choice_of() -> None:
    with pytest.raises(OptionError) as error:
        asr("asr:gc", pooling="attention")
    assert str(error.value) == (
        "Gate 'asr:gc' has no option 'pooling'. It takes: reduction, activation, initial, "
        "layer_initial, layer_spread, smallest."
    )


def test_third_party_module_can_be_learned() -> None:
    class Bias(VectorGate):
        def __init__(self, channels: int) -> None:
            super().__init__(channels)
            self.bias = nn.Parameter(torch.zeros(channels))

        def forward(self, branch: torch.Tensor) -> torch.Tensor:
            return torch.sigmoid(branch + self.bias[:, None, None])

        def of_vector(self, vector: torch.Tensor, activation: object) -> torch.Tensor:
            return activation(vector + self.bias)  # type: ignore[operator]

        def start_constant(self) -> float:
            return 0.5

    gate = LearnedVectorGate(4, Bias, delta=2)
    torch.testing.assert_close(gate.constant(), torch.sigmoid(torch.full((4,), 0.1)) ** 2)


@pytest.mark.parametrize("spec", ["asr:ese", "asr:ge", "asr:gc", "asr:gct*2"])
def test_what_a_vector_determines_folds_into_the_plain_network(spec: str) -> None:
    torch.manual_seed(0)
    plain = attnlab.create("resnet20").eval()
    network, _ = attnlab.insert(plain, spec)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, LearnedVectorGate):
                for parameter in module.parameters():
                    parameter.add_(0.3 * torch.randn_like(parameter))
    folded, receipt = attnlab.fold(network)
    assert list(folded.state_dict()) == list(plain.state_dict())
    assert receipt.float64_change is not None
    assert receipt.float64_change < 1e-12
    images = torch.randn(2, 3, 32, 32)
    assert (network(images) - plain(images)).abs().max() > 1e-3
    torch.testing.assert_close(folded(images), network(images), rtol=1e-4, atol=1e-4)


def test_the_default_is_one_vector_of_a_tenth() -> None:
    """δ = 1 and ψ = 0.1, as in the paper's code."""
    for gate in (LearnedVectorGate(6), build_gate("asr:se", 6)):
        assert len(gate.vectors) == 1
        assert torch.equal(gate.vectors[0].psi, torch.full((1, 6, 1, 1), 0.1))
    assert len(build_gate("asr:se*3", 6).vectors) == 3
