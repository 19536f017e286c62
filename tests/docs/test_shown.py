"""What pages show and no test runs: every study file is planned, every line of a shell is read by
its command."""

from __future__ import annotations

import functools
import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
from tests.docs.blocks import ROOT, Block, blocks_of, pages

import attnlab.cli
from attnlab.gates import parse_gate
from attnlab.lab.study import load_study, planned_runs

BELOW = """
data = "digits"
backbone = "resnet20"
attention = ["none", "se"]
seeds = 2
recipe = "digits"
"""
"""What a page that shows a part of a study's file leaves out."""


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


STUDIES = [
    pytest.param(path, block, id=f"{name(path)}:{block.line}")
    for path in pages()
    for block in blocks_of(path.read_text(encoding="utf-8"))
    if block.language == "toml"
]
_BLOCK = re.compile(r"^ *```.*?^ *```", flags=re.MULTILINE | re.DOTALL)
_ENDS = {"|", ">", "&&", ";"}


@pytest.mark.parametrize(("path", "block"), STUDIES)
def test_studies_can_be_planned(
    path: Path, block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for own in blocks_of(path.read_text(encoding="utf-8")):
        if own.title and own.title.endswith(".py"):
            (tmp_path / own.title).write_text(own.text, encoding="utf-8")
            monkeypatch.delitem(sys.modules, own.title.removesuffix(".py"), raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    given = tomllib.loads(block.text)
    left_out = [line for line in BELOW.splitlines() if line.split(" ")[0] not in given]
    (tmp_path / "shown.toml").write_text("\n".join([*left_out, block.text]), encoding="utf-8")
    runs = planned_runs(load_study(tmp_path / "shown.toml"))
    assert runs
    for gate in {run.config.attention for run in runs} - {"none"}:
        parse_gate(gate)


def _in_blocks(path: Path) -> list[str]:
    """The commands in blocks of a shell."""
    shells = [
        block for block in blocks_of(path.read_text(encoding="utf-8")) if block.language == "sh"
    ]
    lines = [line for block in shells for line in block.text.replace("\\\n", " ").splitlines()]
    return [line.strip() for line in lines if line.strip().startswith("attnlab ")]


def _in_sentences(path: Path) -> list[str]:
    """The commands in sentences and tables; those of one word are names."""
    text = _BLOCK.sub("", path.read_text(encoding="utf-8"))
    return [each for each in re.findall(r"`(attnlab [^`]+)`", text) if len(each.split()) > 2]


def _words(command: str) -> list[str]:
    """Up to a pipe or a redirection, without a comment."""
    words = shlex.split(command.replace("\\|", "|"), comments=True)[1:]
    return words[: next((place for place, word in enumerate(words) if word in _ENDS), None)]


def _refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What the command says to these words; empty if it would run."""
    if words[0] not in attnlab.cli.COMMANDS:  # `attnlab --version`
        return ""
    command = attnlab.cli.command_named(words[0])

    @functools.wraps(command)
    def bound(**_: object) -> None:
        """The command, which is not run."""

    try:
        attnlab.cli._run(bound, f"attnlab {words[0]}", "", words[1:])
    except (SystemExit, attnlab.AttnlabError) as error:
        return capsys.readouterr().err or str(error)
    return ""


@pytest.mark.parametrize("path", pages(), ids=name)
def test_commands_take_the_options_that_pages_give(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = {command: _refused(_words(command), capsys) for command in _in_blocks(path)}
    for command in _in_sentences(path):
        said = _refused(_words(command), capsys)
        if "Required options" not in said:  # a sentence may leave out what a command is about
            refused[command] = said
    assert {command: said for command, said in refused.items() if said} == {}
