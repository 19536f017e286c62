"""`attnlab try`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import attnlab
from attnlab.cli import main
from attnlab.cli.driver import Opening
from attnlab.cli.insert import GateOptions, insert_into
from attnlab.gates import GATES
from attnlab.networks.checkpoint import Description
from attnlab.surgery.receipt import Receipt


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
        r"  latency     \d\.\d\d× \[\d\.\d\d, \d\.\d\d\] \(\d+\.\d\d → \d+\.\d\d ms; 95 % "
        r"interval of \d+ interleaved rounds; batch 1, threads \d+\)",
        shown,
    )
    assert shown.endswith(
        "In Python:\n"
        "  import attnlab\n"
        "  subject = attnlab.open('resnet20')\n"
        "  network, receipt = attnlab.insert(subject.network, 'se')\n"
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


def inserted(**options: Any) -> Receipt:
    asked = Opening("resnet20", {})
    return insert_into(asked.subject(), asked, GateOptions(gate="se", **options))[1]


def test_options_of_the_gate_reach_it() -> None:
    few, many = (inserted(options=(f"reduction={r}",)).parameters_added for r in (16, 4))
    assert few < many


def test_the_network_is_the_one_that_open_makes() -> None:
    """A gate that a command inserts has the values that `attnlab.open(name, gate=...)` gives it."""
    asked = Opening("resnet20", {})
    network, _ = insert_into(asked.subject(), asked, GateOptions(gate="se"))
    other = attnlab.open("resnet20", gate="se").network.state_dict()
    for name, value in network.state_dict().items():
        assert torch.equal(value, other[name]), name


def test_any_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that says what it is, and the same weights without a word, by --model."""
    file, bare = tmp_path / "plain.safetensors", tmp_path / "bare.pt"
    torch.manual_seed(3)
    network = attnlab.create("resnet20", num_classes=7)
    attnlab.save(network, file, Description("resnet20", num_classes=7))
    torch.save(network.state_dict(), bare)
    shown = shown_by(["se", str(file)], capsys)
    other = shown_by(["se", str(bare), "--model", "resnet20", "--num-classes", "7"], capsys)
    for field in ("sites", "parameters", "MACs", "output"):
        (row,) = re.findall(rf"^  {field} .*$", shown, flags=re.MULTILINE)
        assert row in other


def test_modules_by_name_and_values_as_python(capsys: pytest.CaptureFixture[str]) -> None:
    where = ["layer1.0.bn2", "layer3.2.bn2"]
    shown = shown_by(
        ["se", "--where", " ".join(where), "--set", "reduction=8", "bias=false"], capsys
    )
    assert "  sites       2: layer1.0.bn2, layer3.2.bn2\n" in shown
    # Without biases: 2 C²/8 at C = 16 and 64.
    assert f"(+{2 * 16 * 16 // 8 + 2 * 64 * 64 // 8:,})" in shown
    assert (
        f"attnlab.insert(subject.network, 'se', where={where!r}, reduction=8, bias=False)" in shown
    )


def test_network_of_timm(capsys: pytest.CaptureFixture[str]) -> None:
    assert "attnlab.open('timm:resnet10t')" in shown_by(["eca", "timm:resnet10t"], capsys)


def test_network_without_steps(capsys: pytest.CaptureFixture[str]) -> None:
    """torchvision's ShuffleNetV2 concatenates and never adds."""
    shown = refused(["eca", "torchvision:shufflenet_v2_x0_5"], capsys)
    assert shown.startswith("attnlab: ShuffleNetV2 has no residual step.")


def test_random_state_is_the_callers() -> None:
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    inserted()
    assert torch.equal(torch.random.get_rng_state(), before)


def test_weights_size_and_classes_reach_the_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "weights.safetensors"
    torch.manual_seed(5)
    save_file(attnlab.create("resnet20", num_classes=7).state_dict(), file)
    given = ["--weights", str(file), "--num-classes", "7", "--size", "16", "--batch", "3"]
    shown = shown_by(["se", *given, "--threads", "1"], capsys)
    # The head of ResNet20: 64 features to 7 classes instead of 10.
    assert f"  parameters  {272_474 - 65 * 3:,} → " in shown
    assert "; batch 3, threads 1)" in shown
    # Of 16 × 16 pixels the convolutions, 3³·16 and 9 blocks at 32 × 32, do a quarter of the work.
    convolutions = 1024 * 27 * 16 + 6 * 1024 * 9 * 16**2
    convolutions += sum(n * 9 * c * (c // 2 + 5 * c) for n, c in ((256, 32), (64, 64)))
    projections = 256 * 16 * 32 + 64 * 32 * 64
    assert f"  MACs        {(convolutions + projections) // 4 + 64 * 7:,} → " in shown
    namespace: dict[str, Any] = {}
    exec("\n".join(line.strip() for line in shown.split("In Python:\n")[1].splitlines()), namespace)
    weight = namespace["subject"].network.state_dict()["conv1.weight"]
    assert torch.equal(weight, load_file(file)["conv1.weight"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["sse"],
            "attnlab: Unknown gate 'sse'. Did you mean 'scse' or 'se' or 'sge'? Expected one of: "
            f"{', '.join(GATES)}.\n",
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
            "attnlab: --set is for options of the gate, and 'inplace' is not one.\n",
        ),
        (
            ["se", "resnet50"],
            "attnlab: 'resnet50' is not one of attnlab's own networks. "
            "Did you mean 'timm:resnet50' or 'torchvision:resnet50'?\n",
        ),
        (
            ["se", "--where", "stage:1"],
            "attnlab: Unknown selection where = 'stage:1'. Did you mean 'stages:1,2'? Expected one "
            "of: stages:1,2, blocks:0,3, blocks:1.0,2.3, every:2, code:1001, "
            "random:1@0, any:3@0, norms, in:module.\n",
        ),
        (["se", "--batch", "0"], "attnlab: Expected batch to be at least 1 but got 0.\n"),
        (["se", "--size", "0"], "attnlab: Expected size to be at least 1 but got 0.\n"),
        (["se", "--threads", "0"], "attnlab: Expected --threads to be at least 1 but got 0.\n"),
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
