"""The documents say what is so: code runs, tables match the registry, versions and links agree."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import attnlab
from attnlab.attention import GATES
from attnlab.cli import COMMANDS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "docs/index.md")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def test_readme_tour_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (tour,) = blocks(README, "python")
    namespace: dict[str, Any] = {}
    exec(compile(tour, "README.md", "exec"), namespace)
    shown = capsys.readouterr().out
    assert "1.0     identity   layer1.0" in shown
    assert "inserted se into ResNet" in shown
    assert namespace["receipt"].parameters_after == 272_474  # ResNet-20 with 10 classes, unfolded
    assert len([line for line in tour.splitlines() if line.strip()]) <= 15


def test_readme_table_is_the_registry() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \| (yes|no) \|$", README, flags=re.MULTILINE)
    expected = [
        (info.name, info.title, info.paper, "yes" if info.on_vector else "no")
        for info in GATES.values()
    ]
    assert rows == expected


@pytest.mark.parametrize("name", DOCUMENTS)
def test_commands_in_the_documents_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    used = set(re.findall(r"(?:^|[`/ ])attnlab ([a-z]+)(?= |`|$)", text, flags=re.MULTILINE))
    code = {word for word in used if re.search(rf"[`/]attnlab {word}", text)}
    assert code <= set(COMMANDS)
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"`make (\w+)", text)) <= targets


@pytest.mark.parametrize("name", DOCUMENTS)
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
