"""Words of a command line in another order than the help has them."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import attnlab
from attnlab.__main__ import from_the_shell
from attnlab._errors import OptionError
from attnlab.cli import main
from attnlab.cli._words import in_order, refuse_words
from attnlab.cli.driver import Opening


@dataclass(frozen=True)
class Opened:
    """What a command that opens one network was given."""

    source: str


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The weights of a gated network: once bare, once with what they are of, and a whole one."""
    monkeypatch.chdir(tmp_path)
    plain = attnlab.create("resnet20")
    network, _ = attnlab.insert(plain, "asr:se")
    attnlab.save(network, "my net.safetensors")
    torch.save(network.state_dict(), "bare.pth")
    torch.save(plain, "whole.pt")
    return tmp_path


def ordered(line: str, left_over: str, source: str) -> str:
    found = in_order(shlex.split(line), left_over.split(), {"opening": Opened(source)})
    assert found is not None
    return shlex.join(found)


@pytest.mark.parametrize(
    ("line", "left_over", "source", "expected"),
    [
        ("resnet20 bare.pth -o p", "bare.pth", "resnet20", "resnet20 -o p --weights bare.pth"),
        ("bare.pth resnet20 -o p", "resnet20", "bare.pth", "resnet20 -o p --weights bare.pth"),
        ("resnet20 -o p bare.pth", "bare.pth", "resnet20", "resnet20 -o p --weights bare.pth"),
        # The file is the output as well: the option keeps its value.
        ("resnet20 bare.pth -o bare.pth", "bare.pth", "resnet20",
         "resnet20 -o bare.pth --weights bare.pth"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("folder")
def test_name_and_file(line: str, left_over: str, source: str, expected: str) -> None:
    assert ordered(line, left_over, source) == expected


def test_a_file_that_says_its_network_needs_no_name(folder: Path) -> None:
    (folder / "my net.safetensors").rename(folder / "net.safetensors")
    given = ("resnet20 net.safetensors", "net.safetensors", "resnet20")
    assert ordered(*given) == "net.safetensors"
    given = ("resnet56 net.safetensors", "net.safetensors", "resnet56")
    assert ordered(*given) == "resnet56 --weights net.safetensors"


def test_networks_after_options() -> None:
    found = in_order(["a", "--data", "digits", "b", "digits"], ["b", "digits"], {"sources": ("a",)})
    assert found == ["a", "b", "digits", "--data", "digits"]


def test_nothing_is_guessed_of_unknown_options() -> None:
    assert in_order(["a", "--outt", "b"], ["--outt", "b"], {"opening": Opened("a")}) is None
    assert in_order(["show", "demo", "x"], ["x"], {"action": object()}) is None


def test_words_are_refused_unless_one_looks_like_an_option() -> None:
    """Of that one the parser says which is nearest."""
    for left_over in (["--outt"], ["se", "--outt"], ["--outt", "se"]):
        refuse_words("attnlab modules", left_over, ["match"])
        assert in_order(["a", *left_over], left_over, {"opening": Opened("a")}) is None
    with pytest.raises(OptionError) as error:
        refuse_words("attnlab modules", ["se", "eca"], ["match"])
    assert str(error.value) == (
        "attnlab modules does not take 'se' or 'eca'. To list what has it in its name: --match se. "
        "All that it takes: attnlab modules --help."
    )
    with pytest.raises(OptionError) as error:
        refuse_words("attnlab doctor", ["se"], ["json"])
    assert str(error.value) == (
        "attnlab doctor does not take 'se'. All that it takes: attnlab doctor --help."
    )


@pytest.mark.usefixtures("folder")
def test_fold_in_both_orders_is_fold() -> None:
    main(["fold", "my net.safetensors", "-o", "by itself.safetensors"])
    expected = load_file("by itself.safetensors")
    for number, words in enumerate((["resnet20", "bare.pth"], ["bare.pth", "resnet20"])):
        main(["fold", *words, "--gate", "asr:se", "-o", f"{number}.safetensors"])
        found = load_file(f"{number}.safetensors")
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            "fold resnet20 plain.safetensors",
            "Expected one network but got 'resnet20' and 'plain.safetensors'. There is no file "
            "'plain.safetensors'. To write it: -o plain.safetensors; to read weights: NETWORK "
            "--weights FILE.",
        ),
        (
            "fold resnet20 resnet56 -o p.safetensors",
            "Expected one network but got 'resnet20' and 'resnet56'. Weights are given by "
            "--weights FILE, images by --data NAME, a gate by --gate NAME.",
        ),
        *(
            (
                f"fold {other} bare.pth -o p.safetensors",
                f"Expected one network but got {other!r} and 'bare.pth'. Weights are given by "
                "--weights FILE, images by --data NAME, a gate by --gate NAME.",
            )
            for other in ("gone.pt", "runs/none")
        ),
        ("stiffness resnet20 digits", "'digits' is a data set and not a network: --data digits."),
        ("stripe resnet20 se", "'se' is a gate and not a network: --gate se."),
        (
            "maps timm:test_vit -o m.html",
            "This command has no -o: --out FOLDER writes the page, the JSON file and the figures.",
        ),
        ("try ASR(SE)", "Unknown gate 'ASR(SE)'. Did you mean 'asr:se'?"),
        ("try asr_eca resnet20", "Unknown gate 'asr_eca'. Did you mean 'asr:eca'?"),
        (
            "fold whole.pt -o p.safetensors",
            "Refused to read 'whole.pt': it names attnlab.networks.backbones.resnet.ResNet, and "
            "reading such a file can run code. Expected a state dict. If you trust the file, load "
            "it yourself and save `model.state_dict()` with `torch.save` or safetensors.",
        ),
    ],
)
def test_message(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str, message: str
) -> None:
    before = sorted(folder.iterdir())
    with pytest.raises(SystemExit) as ended:
        main(command.split())
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"attnlab: {message}\n"
    assert sorted(folder.iterdir()) == before


def test_try_in_both_orders(capsys: pytest.CaptureFixture[str]) -> None:
    receipts = []
    for words in (["se", "resnet32"], ["resnet32", "se"]):
        main(["try", *words])
        receipts.append(capsys.readouterr().out.split("  took")[0])
    assert receipts[0] == receipts[1]
    assert receipts[0].startswith("inserted se into ResNet\n  sites       15: ")


def test_the_folder_of_runs_names_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "abc").mkdir()
    (tmp_path / "abc" / "config.json").write_text("{}")
    with pytest.raises(SystemExit):
        main(["stiffness", str(tmp_path)])
    assert capsys.readouterr().err == (
        f"attnlab: There is no '{tmp_path}/config.json', so '{tmp_path}' is not a run's folder. It "
        f"holds 1: pass one, such as '{tmp_path}/abc'.\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "networks resnet20",
            "attnlab networks does not take 'resnet20'. To list what has it in its name: --match "
            "resnet20. All that it takes: attnlab networks --help.",
        ),
        (
            "doctor a b",
            "attnlab doctor does not take 'a' or 'b'. All that it takes: attnlab doctor --help.",
        ),
    ],
)
def test_a_word_where_none_is_taken(
    capsys: pytest.CaptureFixture[str], words: str, message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"attnlab: {message}\n")


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ("resnt56", "Unknown network 'resnt56'. Did you mean 'resnet56'"),
        ("timm:resnet5x", "timm has no network 'resnet5x'. Did you mean 'timm:resnet50'"),
        ("torchvision:resnet5", "torchvision has no network 'resnet5'. Did you mean"),
        (
            "transformers:lama",
            "Unknown network of transformers 'lama'. Did you mean 'llama'",
        ),
        ("tim:resnet50", "Unknown library 'tim'. Did you mean 'timm'?"),
        ("gone.safetensors", "There is no file 'gone.safetensors'."),
        ("empty", "There is no 'empty/config.json', so 'empty' is not a run's folder."),
    ],
)
def test_every_network_is_looked_for_before_the_first_is_opened(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    second: str,
    message: str,
) -> None:
    def opened(one: Opening) -> None:
        raise AssertionError(f"{one.source} was opened")

    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Opening, "subject", opened)
    with pytest.raises(SystemExit) as ended:
        main(["stiffness", "resnet20", second])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(f"attnlab: {message}")


class Interrupting:
    """Ctrl-C while the commands are imported."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "attnlab.cli":
            raise KeyboardInterrupt


@pytest.mark.parametrize("importing", [False, True])
def test_ctrl_c_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], importing: bool
) -> None:
    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("attnlab.cli.command_named", interrupted)
    monkeypatch.setattr("sys.argv", ["attnlab", "stiffness", "resnet20"])
    if importing:
        monkeypatch.delitem(sys.modules, "attnlab.cli")
        monkeypatch.setattr("sys.meta_path", [Interrupting, *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        from_the_shell()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "attnlab: stopped by Ctrl-C.\n"
