"""The command line as a whole: help, unknown names and options, the entry point."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from attnlab.cli import COMMANDS, DESCRIPTION, main


def fails(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_lists_every_command_with_an_example(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for name in COMMANDS:
        assert f"\n  attnlab {name}" in shown, f"add an example of {name} to DESCRIPTION"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command_keeps_its_examples(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"Examples:\n  attnlab {name}" in capsys.readouterr().out


def test_description_names_only_commands_that_exist() -> None:
    lines = [line.split() for line in DESCRIPTION.splitlines() if line.startswith("  attnlab ")]
    assert lines
    assert {words[1] for words in lines} <= set(COMMANDS)


def test_unknown_command_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    names = ", ".join(COMMANDS)
    assert fails(["docter"], capsys) == (
        f"attnlab: Unknown command 'docter'. Did you mean 'doctor'? Expected one of: {names}.\n"
    )


def test_version_is_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert fails(["version"], capsys) == (
        "attnlab: Unknown command 'version'. Did you mean 'attnlab --version'?\n"
    )


def test_command_nothing_like_any(capsys: pytest.CaptureFixture[str]) -> None:
    names = ", ".join(COMMANDS)
    assert fails(["x" * 12], capsys) == (
        f"attnlab: Unknown command 'xxxxxxxxxxxx'. Expected one of: {names}.\n"
    )


def test_unknown_option_is_answered_with_the_nearest(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = fails(["try", "se", "--modle", "resnet20"], capsys)
    words = " ".join(
        re.sub(r"[│╭╮╰╯─]|--{3,}", " ", shown).split()
    )  # the frame depends on encoding
    assert words == (
        "Unrecognized options Unrecognized options: --modle, resnet20 Perhaps you meant: "
        "--model {None}|STR of a file that does not say which network it belongs to, the name of "
        "the network. (default: None) For full helptext, run attnlab try --help"
    )


def test_entry_point_runs_as_a_program() -> None:
    program = shutil.which("attnlab", path=str(Path(sys.executable).parent))
    assert program is not None, "the package is not installed: pip install -e ."
    ended = subprocess.run([program, "docter"], capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.startswith("attnlab: Unknown command 'docter'. Did you mean 'doctor'?")


COMMANDS_ALONE = """
import pathlib, sys, types

# The package without its own __init__, which imports torch.
package = types.ModuleType("attnlab")
package.__path__ = [sys.argv[1]]
package.__version__ = "0"
sys.modules["attnlab"] = package

from attnlab.cli import main

try:
    main(["--help"])
except SystemExit:
    pass
heavy = {"torch", "timm", "torchvision", "transformers", "numpy", "scipy"} & set(sys.modules)
print("loaded:", sorted(heavy))
"""


def test_no_command_imports_anything_heavy_for_its_help() -> None:
    import attnlab

    source = str(Path(attnlab.__file__).parent)
    ended = subprocess.run(
        [sys.executable, "-c", COMMANDS_ALONE, source], capture_output=True, text=True, check=True
    )
    assert ended.stdout.splitlines()[-1] == "loaded: []"
