"""Parameter counts to the integer, and the values at which the gates start."""

from __future__ import annotations

import math

import pytest
import torch

from attnlab.gates import StageGate, StepGate, build_gate
from attnlab.gates._shared import Strength, as_channel_gate, group_count
from attnlab.gates.eca import adaptive_kernel_size
from attnlab.gates.fca import default_dct_size

WIDTHS = (64, 128, 256)

COUNTS: list[tuple[str, dict[str, object], tuple[int, int, int]]] = [
    ("se", {}, (580, 2_184, 8_464)),
    ("se", {"bias": False}, (512, 2_048, 8_192)),
    ("cbam", {}, (610, 2_146, 8_290)),
    ("cbam", {"official": True}, (680, 2_284, 8_564)),
    ("eca", {}, (3, 5, 5)),
    ("sem", {}, (906, 2_832, 9_752)),
    ("srm", {}, (256, 512, 1_024)),
    ("fca", {}, (580, 2_184, 8_464)),
    ("fca", {"bias": False}, (512, 2_048, 8_192)),
    ("ie", {}, (128, 256, 512)),
    ("iebn", {}, (256, 512, 1_024)),
    ("sge", {}, (128, 128, 128)),
    ("dia", {}, (10_784, 42_048, 166_016)),
    ("spa", {}, (5_632, 22_528, 90_112)),
    ("step", {}, (384, 768, 1_536)),
    ("step", {"inputs": "shortcut"}, (320, 640, 1_280)),
    ("step", {"inputs": "next"}, (320, 640, 1_280)),
    ("step", {"inputs": "difference"}, (320, 640, 1_280)),
    ("step", {"structure": "conv-bn"}, (256, 512, 1_024)),
    ("step", {"structure": "conv-ie"}, (256, 512, 1_024)),
    ("step", {"structure": "conv-iebn"}, (384, 768, 1_536)),
    ("asr:se", {}, (644, 2_312, 8_720)),
    ("asr:se*2", {}, (1_288, 4_624, 17_440)),
    ("asr:ie", {}, (192, 384, 768)),
    ("asr:srm", {}, (320, 640, 1_280)),
    ("asr:spa", {}, (5_696, 22_656, 90_368)),
    ("asr:eca", {}, (67, 133, 261)),
    ("bam", {}, (1_173, 4_457, 17_361)),
    ("bam", {"official": True}, (1_173, 4_457, 17_361)),
    ("scse", {}, (4_257, 16_705, 66_177)),
    ("ese", {}, (4_160, 16_512, 65_792)),
    ("ge", {}, (0, 0, 0)),
    ("gep", {}, (2_112, 4_224, 8_448)),
    ("gep", {"extent": 0, "map_size": 7}, (3_264, 6_528, 13_056)),
    ("gc", {}, (652, 2_328, 8_752)),
    ("coord", {}, (1_688, 3_352, 6_680)),
    ("ela", {}, (576, 1_152, 2_304)),
    ("ela", {"version": "T"}, (448, 896, 1_792)),
    ("ela", {"version": "S"}, (2_688, 5_376, 10_752)),
    ("ela", {"version": "L"}, (3_712, 7_424, 14_848)),
    ("ela", {"shared": False}, (1_152, 2_304, 4_608)),
    ("simam", {}, (0, 0, 0)),
    ("triplet", {}, (300, 300, 300)),
    ("triplet", {"spatial": False}, (200, 200, 200)),
    ("ema", {}, (48, 176, 672)),
    ("gam", {}, (102_720, 410_240, 1_639_680)),
    ("gct", {}, (192, 384, 768)),
    ("token", {}, (65, 129, 257)),
    ("token", {"read": 12}, (13, 13, 13)),
    ("head", {}, (260, 516, 1_028)),
    ("head", {"heads": 8, "read": 12}, (104, 104, 104)),
    ("element", {}, (4_160, 16_512, 65_792)),
    ("element", {"read": 12}, (832, 1_664, 3_328)),
    ("scale", {}, (64, 128, 256)),
    ("rezero", {}, (1, 1, 1)),
    ("lambda", {}, (2, 2, 2)),
    ("asr:ese", {}, (4_224, 16_640, 66_048)),
    ("asr:ge", {}, (64, 128, 256)),
    ("asr:gc", {}, (652, 2_328, 8_752)),  # ψ in the place of the weights of the pixels
    ("asr:gct", {}, (256, 512, 1_024)),
]


@pytest.mark.parametrize(
    ("name", "options", "counts"), COUNTS, ids=[f"{n} {o}" for n, o, _ in COUNTS]
)
def test_parameter_count(
    name: str, options: dict[str, object], counts: tuple[int, int, int]
) -> None:
    built = [build_gate(name, width, **options) for width in WIDTHS]
    assert tuple(sum(p.numel() for p in gate.parameters()) for gate in built) == counts


# The widths at which the authors' networks have the gate, and what their tables print.
RESNET50, MOBILENET_V2 = 25_557_032, 3_504_872
MOBILENET_WIDTHS = [96, 144, 144, *[192] * 3, *[384] * 4, *[576] * 3, *[960] * 3]
NETWORKS: list[tuple[str, int, list[int], str]] = [
    ("bam", RESNET50, [256, 512, 1_024], "25.92"),
    ("coord", MOBILENET_V2, MOBILENET_WIDTHS, "3.95"),
    ("triplet", RESNET50, [*[256] * 3, *[512] * 4, *[1_024] * 6, *[2_048] * 3], "25.56"),
    ("simam", RESNET50, [*[64] * 3, *[128] * 4, *[256] * 6, *[512] * 3], "25.56"),
]


@pytest.mark.parametrize(("name", "plain", "widths", "printed"), NETWORKS, ids=str)
def test_network_has_the_printed_count(
    name: str, plain: int, widths: list[int], printed: str
) -> None:
    gates = (build_gate(name, width) for width in widths)
    total = plain + sum(p.numel() for gate in gates for p in gate.parameters())
    assert f"{total / 1e6:.2f}" == printed


@pytest.mark.parametrize(
    ("name", "options", "value"),
    [
        ("ie", {}, 0.2689414213699951),
        ("srm", {}, 0.5),
        ("sge", {}, 0.7310585786300049),
        ("step", {}, 0.2689414213699951),
        ("step", {"structure": "conv-ie"}, 0.2689414213699951),
        ("asr:ie", {}, 0.2689414213699951),
        ("asr:ie*2", {}, 0.2689414213699951**2),
        ("asr:srm", {}, 0.5),
        ("gc", {}, 0.5),
        ("gct", {}, 1.0),
        ("asr:gct", {}, 1.0),
        ("token", {}, 1.0),
        ("token", {"factor": 1.0}, 0.5),
        ("head", {}, 1.0),
        ("element", {"factor": 1.0}, 0.5),
        ("scale", {"initial": 0.125}, 0.125),
        ("rezero", {}, 0.0),
        ("lambda", {}, 1.0),
    ],
)
def test_initial_gate(name: str, options: dict[str, object], value: float) -> None:
    gate = build_gate(name, 64, **options).double().train()
    branch = torch.randn(4, 64, 6, 6, dtype=torch.float64)
    got = gate(branch, branch) if isinstance(gate, StepGate) else gate(branch)
    torch.testing.assert_close(got, torch.full_like(got, value), rtol=0, atol=1e-15)


STRUCTURES = ("conv-bn-ie", "conv-bn", "conv-ie", "mlp")


@pytest.mark.parametrize(
    ("name", "options", "value"),
    [
        ("se", {}, 0.5),
        ("eca", {}, 0.5),
        ("ie", {}, 1 / (1 + math.e)),
        ("cbam", {}, 0.25),
        ("cbam", {"official": True}, 0.25),
        *(
            ("step", {"structure": each}, 1 / (1 + math.e) if each.endswith("ie") else 0.5)
            for each in STRUCTURES
        ),
    ],
)
def test_a_trained_gate_can_be_made_one_constant(
    name: str, options: dict[str, object], value: float
) -> None:
    """Whatever its parameters and its statistics were."""
    gate = build_gate(name, 64, **options).double().eval()
    for parameter in gate.parameters():
        torch.nn.init.normal_(parameter)
    for key, buffer in gate.named_buffers():
        if key.endswith(("running_mean", "running_var")):
            torch.nn.init.uniform_(buffer, 0.5, 2.0)
    branch = torch.randn(3, 64, 6, 6, dtype=torch.float64)
    given = (branch, branch) if isinstance(gate, StepGate) else (branch,)
    assert gate(*given).std() > 0.01
    assert gate.start_constant() == pytest.approx(value, abs=1e-15)
    got = gate(*given)
    torch.testing.assert_close(got, torch.full_like(got, value), rtol=0, atol=1e-12)


def test_the_norm_of_cbam_is_that_of_the_authors() -> None:
    """A slow mean, and statistics of all pixels, so that one image has some."""
    gate = build_gate("cbam", 8, official=True).train()
    assert (gate.norm.momentum, gate.norm.eps) == (0.01, 1e-5)
    assert gate(torch.randn(1, 8, 2, 2)).shape == (1, 8, 2, 2)


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3, 5, 4), (2, 3, 5, 4, 3)], ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_a_value_per_channel_has_the_rank_and_the_type_of_the_branch(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    values = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    gate = as_channel_gate(values, torch.zeros(shape, dtype=dtype))
    assert gate.dtype == dtype
    assert gate.shape == (2, 3, *[1] * (len(shape) - 2))
    assert gate.flatten(1).tolist() == values.tolist()


def test_sem_starts_below_its_bias() -> None:
    """σ(g₂ · (−1)) with a switch g₂ in (0, 1) lies between σ(−1) and σ(0)."""
    gate = build_gate("sem", 64)
    torch.nn.init.zeros_(gate.excitation.fc2.weight)
    torch.nn.init.zeros_(gate.excitation.fc2.bias)
    torch.nn.init.zeros_(gate.conv.weight)
    affine = gate(torch.randn(4, 64, 6, 6)) * 4
    assert bool(((affine > 0.26894) & (affine < 0.5)).all())


def test_dia_gate_of_the_first_block_lies_below_one_half_times_output() -> None:
    gate = build_gate("dia", 64)
    assert isinstance(gate, StageGate)
    value, (hidden, cell) = gate(torch.randn(4, 64, 6, 6), None)
    assert torch.equal(value[:, :, 0, 0], hidden)
    # h' = o · σ(c'), so h' < σ(c') always; a tanh cell would also give negative gates.
    assert bool((hidden < torch.sigmoid(cell)).all())
    assert bool((hidden > 0).all())


@pytest.mark.parametrize(
    ("channels", "hidden"), [(1, 1), (3, 1), (17, 1), (58, 4), (116, 7), (232, 14), (256, 16)]
)
def test_hidden_width_is_rounded_to_even_and_at_least_one(channels: int, hidden: int) -> None:
    assert build_gate("se", channels).excitation.fc1.out_features == hidden


def test_adaptive_kernel_size_is_odd() -> None:
    sizes = [adaptive_kernel_size(c) for c in (1, 3, 16, 64, 128, 256, 512, 2048)]
    assert sizes == [1, 1, 3, 3, 5, 5, 5, 7]


def test_dct_size_follows_the_cifar_networks_and_never_loses_the_grid() -> None:
    sizes = [default_dct_size(c) for c in (1, 64, 128, 256, 512, 2048)]
    assert sizes == [32, 32, 16, 8, 7, 7]


def test_a_strength_goes_from_one_to_the_gate() -> None:
    gate, strength = torch.tensor([0.0, 0.5, 3.0], dtype=torch.float64), Strength()
    assert torch.equal(strength(gate), gate)
    assert not list(strength.parameters())
    strength.start_zero()
    assert torch.equal(strength(gate), torch.ones_like(gate))
    torch.nn.init.constant_(strength.value, 0.25)
    assert strength(gate).tolist() == [0.75, 0.875, 1.5]
    torch.nn.init.ones_(strength.value)
    assert torch.equal(strength(gate), gate)


def test_a_reduction_of_one_keeps_every_channel() -> None:
    assert build_gate("se", 8, reduction=1).excitation.fc1.out_features == 8
    assert build_gate("se", 8, reduction=1.6).excitation.fc1.out_features == 5


def test_group_count_divides_the_channels() -> None:
    counts = {c: group_count(c, 64) for c in (1, 3, 17, 58, 64, 96, 256, 67)}
    assert counts == {1: 1, 3: 3, 17: 17, 58: 58, 64: 64, 96: 48, 256: 64, 67: 1}


def test_dct_frequencies_of_any_number_of_channels_start_with_the_mean() -> None:
    """The first group's frequency is zero: its coefficient is the sum divided by the DCT size."""
    for channels in (1, 3, 17, 58):
        gate = build_gate("fca", channels).double()
        x = torch.randn(2, channels, 32, 32, dtype=torch.float64)
        torch.testing.assert_close(gate.squeeze(x)[:, 0], x[:, 0].sum(dim=(1, 2)) / 32)


def test_dct_basis_is_orthonormal() -> None:
    gate = build_gate("fca", 64).double()
    basis = torch.einsum("gh,gw->ghw", gate.rows, gate.columns).flatten(1)
    product = (basis @ basis.T).float()
    torch.testing.assert_close(product, torch.eye(16), rtol=0, atol=1e-6)
    assert math.isclose(float(basis[0, 0]), 1 / 32, rel_tol=1e-6)
