"""`attnlab try`."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import nn

from attnlab.cli import main
from attnlab.cli.try_ import compare, trial


def shown_by(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    main(["try", *arguments])
    return capsys.readouterr().out


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["try", *arguments])
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_resnet20_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    """Nine SE modules of 3 × (49, 162, 580) parameters at C = 16, 32, 64."""
    shown = shown_by(["se"], capsys)
    assert shown.startswith("inserted se into ResNet\n  sites       9: layer1.0.bn2, ")
    assert "  parameters  272,474 → 274,847 (+2,373)\n" in shown
    assert re.search(
        r"  latency     \d+\.\d\d× \(\d+\.\d\d → \d+\.\d\d ms, median of \d+ pairs", shown
    )
    assert shown.endswith(
        "In Python:\n"
        "  import attnlab\n"
        "  plain = attnlab.create('resnet20').eval()\n"
        "  network, receipt = attnlab.insert(plain, 'se')\n"
        "  print(receipt)\n"
    )


def test_python_lines_do_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["step", "--where", "stages:2,3", "--start", "identity", "--set", "inputs=shortcut"]
    shown = shown_by(arguments, capsys)
    receipt, _, lines = shown.partition("In Python:\n")
    namespace: dict[str, Any] = {}
    exec("\n".join(line.strip() for line in lines.splitlines()), namespace)
    printed = capsys.readouterr().out
    for field in ("sites", "parameters", "MACs"):
        (row,) = re.findall(rf"^  {field} .*$", receipt, flags=re.MULTILINE)
        assert row in printed
    assert namespace["receipt"].relative_change <= 1e-6


def test_options_of_the_gate_reach_it() -> None:
    few, many = (trial("se", options={"reduction": r}).receipt.parameters_added for r in (16, 4))
    assert few < many


def test_modules_by_name_and_values_as_python(capsys: pytest.CaptureFixture[str]) -> None:
    where = ["layer1.0.bn2", "layer3.2.bn2"]
    shown = shown_by(["se", "--where", *where, "--set", "reduction=8", "bias=false"], capsys)
    assert "  sites       2: layer1.0.bn2, layer3.2.bn2\n" in shown
    # Without biases: 2 C²/8 at C = 16 and 64.
    assert f"(+{2 * 16 * 16 // 8 + 2 * 64 * 64 // 8:,})" in shown
    assert f"attnlab.insert(plain, 'se', where={where!r}, reduction=8, bias=False)" in shown


def test_network_of_timm(capsys: pytest.CaptureFixture[str]) -> None:
    assert "attnlab.create('timm:resnet10t')" in shown_by(
        ["eca", "--model", "timm:resnet10t"], capsys
    )


def test_network_without_steps(capsys: pytest.CaptureFixture[str]) -> None:
    """torchvision's ShuffleNetV2 concatenates and never adds."""
    shown = refused(["eca", "--model", "torchvision:shufflenet_v2_x0_5"], capsys)
    assert shown.startswith("attnlab: ShuffleNetV2 has no residual step.")


def test_random_state_is_the_callers() -> None:
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    trial("se")
    assert torch.equal(torch.random.get_rng_state(), before)


def test_ratio_tells_slow_from_fast() -> None:
    class Repeated(nn.Module):
        def __init__(self, times: int) -> None:
            super().__init__()
            self.times = times

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            for _ in range(self.times):
                images = images @ images
            return images

    fast, slow = Repeated(2), Repeated(16)
    found = compare(fast, slow, torch.eye(192), seconds=0.5)
    assert found.ratio > 3
    assert 5 <= found.pairs <= 50
    assert found.batch == 192
    assert compare(slow, fast, torch.eye(192), seconds=0.5).ratio < 1 / 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["sse"],
            "attnlab: Unknown gate 'sse'. Did you mean 'scse' or 'se' or 'sge'? Expected one of: "
            "se, cbam, eca, sem, srm, fca, ie, iebn, sge, dia, spa, step, bam, scse, ese, ge, gep, "
            "gc, coord, ela, simam, triplet, ema, gam, gct.\n",
        ),
        (
            ["se", "--set", "reductoin=8"],
            "attnlab: Gate 'se' has no option 'reductoin'. Did you mean 'reduction'? "
            "It takes: reduction, bias, nonlinearity, squash, trainable.\n",
        ),
        (
            ["se", "--set", "reduction"],
            "attnlab: Expected --set KEY=VALUE, as in --set reduction=8, but got 'reduction'.\n",
        ),
        (
            ["se", "--set", "inplace=True"],
            "attnlab: --set is for options of the gate, and 'inplace' is none.\n",
        ),
        (
            ["se", "--model", "resnet50"],
            "attnlab: 'resnet50' is not one of attnlab's own networks. "
            "Did you mean 'timm:resnet50' or 'torchvision:resnet50'?\n",
        ),
        (
            ["se", "--where", "stage:1"],
            "attnlab: Unknown selection where = 'stage:1'. Did you mean 'stages:1,2'? Expected one "
            "of: stages:1,2, blocks:0,3, blocks:1.0,2.3, every:2, norms, in:module.\n",
        ),
        (["se", "--batch", "0"], "attnlab: Expected batch to be at least 1 but got 0.\n"),
    ],
)
def test_messages(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(arguments, capsys) == message


def test_wrong_start(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    shown = refused(["se", "--start", "identiti"], capsys)
    assert (
        "invalid choice 'identiti' for argument '--start'. Expected one of ('paper', 'identity')."
        in shown
    )
