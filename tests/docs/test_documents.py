"""The documents say what is so: tables match the registry, commands exist, versions agree."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections import Counter
from pathlib import Path

import pytest
import yaml
from tests.docs.blocks import ROOT, blocks_of, pages

import attnlab
from attnlab import gates
from attnlab.cli import COMMANDS, main
from attnlab.gates import GATES
from attnlab.instruments.registry import INSTRUMENTS

README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = ("CONTRIBUTING.md", *(page.relative_to(ROOT).as_posix() for page in pages()))


def test_readme_tour_is_short() -> None:
    (tour,) = (block for block in blocks_of(README) if block.language == "python")
    assert len([line for line in tour.lines if line.strip()]) <= 15


def test_readme_is_short() -> None:
    assert len(re.sub(r"^```.*?^```", "", README, flags=re.M | re.S).split()) <= 500


def _readme_commands() -> list[str]:
    lines = (line for block in blocks_of(README) if block.language == "sh" for line in block.lines)
    return [line.partition("#")[0].strip() for line in lines if line.startswith("attnlab ")]


def test_readme_commands_run_as_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In their order and in one folder: one reads what the line before it wrote."""
    monkeypatch.chdir(tmp_path)
    commands = _readme_commands()
    assert len(commands) >= 5
    for command in commands:
        main(shlex.split(command)[1:])
        assert capsys.readouterr().out, command


def test_page_of_the_gates_has_the_registry() -> None:
    page = (ROOT / "docs" / "gates.md").read_text(encoding="utf-8")
    table = page[page.index("| name | gate |") :].split("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| .* \| (.+?) \|$", table, flags=re.MULTILINE)
    shown = {name for name, _ in rows}
    assert shown >= {info.name for info in GATES.values() if info.build.__name__ in dir(gates)}
    assert [name for name, _ in rows] == [name for name in GATES if name in shown]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_commands_in_the_documents_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    used = set(re.findall(r"(?:^|[`/ ])attnlab ([a-z]+)(?= |`|$)", text, flags=re.MULTILINE))
    code = {word for word in used if re.search(rf"[`/]attnlab {word}", text)}
    assert code <= set(COMMANDS)
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"`make (\w+)", text)) <= targets


@pytest.mark.parametrize("name", DOCUMENTS)
def test_no_page_says_a_section_or_a_paragraph_twice(name: str) -> None:
    """As an edit that went wrong leaves it, one of the two out of date."""
    text = re.sub(r"^```.*?^```", "", (ROOT / name).read_text(encoding="utf-8"), flags=re.M | re.S)
    sections = re.findall(r"^## .+$", text, flags=re.MULTILINE)
    paragraphs = [each for each in re.split(r"\n\s*\n", text) if len(each) > 100]
    for said in (sections, paragraphs):
        assert [each for each, times in Counter(said).items() if times > 1] == []


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_somewhere(name: str) -> None:
    document = ROOT / name
    links = re.findall(r"\]\(([^)#]+)", document.read_text(encoding="utf-8"))
    missing = [
        link
        for link in links
        if not link.startswith("http") and not (document.parent / link).exists()
    ]
    assert missing == []


def test_versions_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert str(citation["version"]) == project["version"] == attnlab.__version__
    assert citation["license"] == project["license"]


def test_citation_has_what_its_format_asks_for() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    for paper in citation["references"]:
        assert {"type", "title", "authors", "year"} <= paper.keys()
    identifiers = [paper["identifiers"][0]["value"] for paper in citation["references"]]
    assert identifiers == ["arXiv:2308.09939", "arXiv:2304.06345", "arXiv:2305.14409"]


def test_page_for_programs_names_every_command_and_runs() -> None:
    text = (ROOT / "docs" / "llms.txt").read_text(encoding="utf-8")
    listed = re.findall(r"^- attnlab (\w+)", text, flags=re.MULTILINE)
    assert sorted(listed) == sorted(COMMANDS)
    (block,) = (block for block in blocks_of(text) if block.language == "python")
    exec(block.text, {"__name__": "page"})
    for name in re.findall(r"attnlab\.(\w+)", text):
        assert hasattr(attnlab, name), name


@pytest.mark.parametrize("command", INSTRUMENTS)
def test_page_for_programs_says_who_has_json(command: str) -> None:
    text = (ROOT / "docs" / "llms.txt").read_text(encoding="utf-8")
    assert f"`{command}`" in text[text.index("`--json`") : text.index("Other commands")]
