"""`attnlab modules`, against the papers' integers and closed forms."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab._errors import UnknownNameError
from attnlab.cli import main
from attnlab.cli.modules import _value, rows
from attnlab.gates import GATES, StepGate

# One module at C = 64, 128, 256, as the papers' whole-network counts imply.
PARAMETERS = {
    "se": [580, 2184, 8464],
    "cbam": [610, 2146, 8290],
    "eca": [3, 5, 5],
    "sem": [906, 2832, 9752],
    "srm": [256, 512, 1024],
    "fca": [580, 2184, 8464],
    "ie": [128, 256, 512],
    "iebn": [128, 256, 512],
    "sge": [128, 128, 128],
    "dia": [10784, 42048, 166016],
    "spa": [5632, 22528, 90112],
    "step": [384, 768, 1536],
    "bam": [1173, 4457, 17361],
    "scse": [4257, 16705, 66177],
    "ese": [4160, 16512, 65792],
    "ge": [0, 0, 0],
    "gep": [2112, 4224, 8448],
    "gc": [652, 2328, 8752],
    "coord": [1688, 3352, 6680],
    "ela": [576, 1152, 2304],
    "simam": [0, 0, 0],
    "triplet": [300, 300, 300],
    "ema": [48, 176, 672],
    "gam": [102720, 410240, 1639680],
    "gct": [192, 384, 768],
    "token": [65, 129, 257],
    "head": [260, 516, 1028],
    "element": [4160, 16512, 65792],
    "scale": [64, 128, 256],
    "rezero": [1, 1, 1],
    "lambda": [2, 2, 2],
}
ON_VECTOR = {"se", "eca", "sem", "srm", "ie", "spa", "ese", "ge", "gc", "gct"}
CONSTANT = {"scale", "rezero"}
OF_ANY_RANK = {
    *("se", "eca", "sem", "srm", "ie", "sge", "dia", "step"),
    *("ese", "ge", "gc", "simam", "gct", "token", "head", "element", "scale"),
    *("rezero", "lambda"),
}


@pytest.fixture(scope="module")
def gates() -> dict[str, dict[str, Any]]:
    import contextlib
    import io

    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        main(["modules", "--json"])
    document = json.loads(shown.getvalue())
    assert document["sizes"] == [
        {"channels": 64, "side": 32},
        {"channels": 128, "side": 16},
        {"channels": 256, "side": 8},
    ]
    return {row["name"]: row for row in document["gates"]}


def test_every_registered_gate_has_a_row(gates: dict[str, dict[str, Any]]) -> None:
    assert list(gates) == list(GATES)


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_the_papers(name: str, gates: dict[str, dict[str, Any]]) -> None:
    assert gates[name]["parameters"] == PARAMETERS[name]


def test_macs_of_closed_forms(gates: dict[str, dict[str, Any]]) -> None:
    widths = (64, 128, 256)
    assert gates["se"]["macs"] == [2 * c * (c // 16) for c in widths]
    assert gates["eca"]["macs"] == [c * k for c, k in zip(widths, (3, 5, 5), strict=True)]
    # A(z) and B(h), each C → C/4 → 4C.
    assert gates["dia"]["macs"] == [2 * (c * c // 4 + c // 4 * 4 * c) for c in widths]
    # Both layers of the perceptron at every pixel, and two 7×7 convolutions over C/4 channels.
    assert gates["gam"]["macs"] == [104_857_600] * 3
    assert gates["ese"]["macs"] == [c * c for c in widths]
    # Three depthwise 3×3 convolutions, each on a quarter of the pixels of the last.
    assert gates["gep"]["macs"] == [
        9 * c * s * s * 21 // 64 for c, s in ((64, 32), (128, 16), (256, 8))
    ]
    assert gates["simam"]["macs"] == gates["gct"]["macs"] == gates["ge"]["macs"] == [0, 0, 0]
    # The MLP on two pools, and a 7×7 convolution of two maps.
    sides = (32, 16, 8)
    mlp = [2 * 2 * c * (c // 16) for c in widths]
    spatial = [2 * 49 * side**2 for side in sides]
    pooled = [c * side**2 for c, side in zip(widths, sides, strict=True)]
    found = gates["cbam"]["macs"]
    for i in range(3):
        # Channel means may be written as a product with ones, which counts C per pixel.
        assert found[i] - mlp[i] - spatial[i] in (0, pooled[i])


def test_first_values(gates: dict[str, dict[str, Any]]) -> None:
    sigmoid_of_minus_one = 1 / (1 + math.e)
    for name in ("ie", "iebn", "step"):
        assert gates[name]["initial_gate"] == pytest.approx(sigmoid_of_minus_one, abs=1e-6)
        assert gates[name]["initial_gate_deviation"] < 1e-6
    assert gates["srm"]["initial_gate"] == pytest.approx(0.5, abs=1e-6)
    assert gates["sge"]["initial_gate"] == pytest.approx(1 / (1 + math.exp(-1)), abs=1e-6)
    assert gates["se"]["initial_gate"] == pytest.approx(0.5, abs=0.05)
    assert gates["se"]["initial_gate_deviation"] > 1e-3
    assert gates["gct"]["initial_gate"] == 1.0
    assert gates["gc"]["initial_gate"] == 0.5
    assert gates["token"]["initial_gate"] == 1.0
    assert gates["rezero"]["initial_gate"] == 0.0
    assert gates["bam"]["initial_gate"] == pytest.approx(1.5, abs=0.1)
    assert gates["simam"]["initial_gate"] > 1 / (1 + math.exp(-0.5))


def test_which_fold(gates: dict[str, dict[str, Any]]) -> None:
    assert {name for name in PARAMETERS if gates[name]["folds"]} == ON_VECTOR | CONSTANT
    assert {name for name in PARAMETERS if GATES[name].on_vector} == ON_VECTOR
    assert all(GATES[name].on_vector != bool(row["why_not"]) for name, row in gates.items())
    assert (gates["se"]["folds_as"], gates["scale"]["folds_as"]) == ("asr:se", "scale")
    assert gates["token"]["folds_as"] == ""


def test_ranks(gates: dict[str, dict[str, Any]]) -> None:
    for name in PARAMETERS:
        assert gates[name]["ranks"] == ([1, 2, 3] if name in OF_ANY_RANK else [2]), name


@pytest.mark.parametrize(
    ("match", "names"),
    [
        ("cbam", ["cbam"]),
        ("EXCIT", ["se", "sem", "scse", "ese", "ge", "gep"]),
        ("cvpr 2020", ["eca", "ese", "gct"]),
    ],
)
def test_match(match: str, names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(["modules", "--match", match])
    shown = capsys.readouterr().out
    rows = [line.split()[0] for line in shown.splitlines() if re.search(r", \w+ 20\d\d ", line)]
    assert [name for name in rows if name in PARAMETERS] == names
    assert shown.endswith(f"  from attnlab.cli.modules import rows\n  rows({match!r})\n")


def test_match_that_fits_no_gate() -> None:
    with pytest.raises(UnknownNameError) as error:
        rows("cbma")
    assert str(error.value) == (
        "No gate has 'cbma' in its name, title or paper. Did you mean 'cbam' or 'fca' or 'ema'? "
        "`attnlab modules` lists all."
    )


def test_table_and_python_line(capsys: pytest.CaptureFixture[str]) -> None:
    main(["modules"])
    shown = capsys.readouterr().out
    assert "Per gate, for maps of 64×32×32, 128×16×16, 256×8×8" in shown
    lines = [line for line in shown.splitlines() if re.search(r", \w+ 20\d\d ", line)]
    rows = {line.split()[0]: line for line in lines}
    assert list(rows) == list(GATES)
    assert "Hu et al., CVPR 2018" in rows["se"]
    assert "580 2,184 8,464" in rows["se"]
    assert rows["se"].split()[-4] == "asr:se"
    assert re.search(r"0\.\d{3} ± 0\.\d{3}", rows["se"])  # it differs between images
    assert "512 2,048 8,192 " in rows["se"]
    assert "104.9M 104.9M 104.9M" in rows["gam"]
    assert rows["cbam"].split()[-4] == "no"
    assert rows["ie"].split()[-2:] == ["asr:ie", "0.269"]
    assert all(line.startswith(f" {name} ") for name, line in rows.items())  # no row is broken
    assert "\nno asr:cbam, asr:sge, asr:bam, asr:scse, asr:gep, asr:coord, asr:ela, " in shown
    assert (
        "no asr:step: it compares the two ends of a step, and a learned vector has no ends.\n"
        in shown
    )
    assert shown.endswith("In Python:\n  from attnlab.cli.modules import rows\n  rows()\n")


def test_a_step_gate_is_given_another_state_than_its_branch() -> None:
    class Noting(StepGate):
        def forward(self, shortcut: Tensor, branch: Tensor) -> Tensor:
            return torch.stack([shortcut, branch])

        def start_constant(self) -> float:
            raise NotImplementedError

    features = torch.arange(12.0).reshape(3, 4, 1, 1)
    shortcut, branch = _value(Noting(4), features)
    assert torch.equal(branch, features)
    assert torch.equal(shortcut, features[[2, 0, 1]])
