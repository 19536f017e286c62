"""The built site: nothing is missing, every link leads somewhere, nothing comes from elsewhere.

Zensical's strict mode finds links between pages, anchors and names of the reference that do not
exist. It does not look at the navigation, at pages outside it, at pictures, or at raw HTML.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.docs.blocks import ROOT
from tests.docs.html import is_external, leads_nowhere, read_page

import attnlab
from attnlab.cli import COMMANDS

DOCS = ROOT / "docs"
PACKAGES = (
    "evolution",
    "gates",
    "instruments.dynamics",
    "instruments.maps",
    "instruments.noise",
    "instruments.place",
    "instruments.removal",
    "instruments.stiffness",
    "instruments.stripe",
    "lab.comparison",
    "lab.pages",
    "lab.statistics",
    "lab.study",
    "lab.training",
    "networks.backbones",
    "networks.checkpoint",
    "residuals",
    "surgery.folding",
    "surgery.insertion",
    "surgery.shortening",
    "testing",
)


def test_the_site_builds_without_a_warning(site: Path) -> None:
    log = (site.parent / "log.txt").read_text(encoding="utf-8")
    assert (site.parent / "code.txt").read_text() == "0", log
    assert "No issues found" in log


def in_navigation(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    children = entry.values() if isinstance(entry, dict) else entry
    return [page for child in children for page in in_navigation(child)]


def test_navigation_is_the_pages() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    listed = in_navigation(settings["nav"])
    assert len(listed) == len(set(listed))
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert sorted(set(listed) - pages) == [], "in the navigation, but no page"
    assert sorted(pages - set(listed)) == [], "a page, but not in the navigation"


def test_links_and_pictures_lead_somewhere(site: Path) -> None:
    wrong = {
        (page.relative_to(site).as_posix(), reference)
        for page in site.rglob("*.html")
        if page.name != "404.html"  # its links begin at the root of a server
        for reference in (*read_page(page).links, *read_page(page).loaded)
        if leads_nowhere(reference, page)
    }
    assert wrong == set()


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    loaded = {reference for page in pages for reference in read_page(page).loaded}
    assert {reference for reference in loaded if is_external(reference)} == set()
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", text) == [], sheet


def test_scripts_of_the_theme_have_no_occasion_to_fetch(site: Path) -> None:
    """The theme's script can load diagrams and repository facts; no page asks for either."""
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r'class="mermaid"|data-md-component="source"|glightbox|pyodide', text)


def public_names(package: str) -> list[str]:
    """The names that a package's `__init__` hands on (`X as X`) or defines."""
    path = ROOT.joinpath("src", "attnlab", *package.split("."), "__init__.py")
    names: list[str] = []
    tree = ast.parse(path.read_text(encoding="utf-8"))
    # Instruments import what they hand on at its first use, and say so to a type checker alone.
    lazy = [node for each in tree.body if isinstance(each, ast.If) for node in each.body]
    for node in (*tree.body, *lazy):
        if isinstance(node, ast.ImportFrom):
            names += [alias.name for alias in node.names if alias.asname == alias.name]
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
    return [name for name in names if not name.startswith("_")]


def resolve(identifier: str) -> object:
    """The object of a dotted name; packages come before the functions of the same name."""
    module, _, name = identifier.rpartition(".")
    package = importlib.import_module(module)
    return getattr(package, name, None) or importlib.import_module(identifier)


def documented() -> dict[str, Path]:
    """Every identifier that a reference page renders, and its page."""
    found: dict[str, Path] = {}
    for page in sorted((DOCS / "reference").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        for identifier in re.findall(r"^::: (\S+)$", text, flags=re.MULTILINE):
            assert identifier not in found, f"{identifier} is on two pages."
            found[identifier] = page
    return found


def test_every_public_name_is_on_a_reference_page(site: Path) -> None:
    rendered = []
    for identifier, page in documented().items():
        html = site / page.relative_to(DOCS).with_suffix(".html")
        assert identifier in read_page(html).names, f"{identifier} is not rendered."
        rendered.append(resolve(identifier))
    surface = {
        f"attnlab.{name}": getattr(attnlab, name)
        for name in dir(attnlab)
        if not name.startswith("_") and not inspect.ismodule(getattr(attnlab, name))
    }
    for package in PACKAGES:
        module = importlib.import_module(f"attnlab.{package}")
        surface |= {f"attnlab.{package}.{n}": getattr(module, n) for n in public_names(package)}
    assert len(surface) > 100
    missing = [name for name, it in surface.items() if not any(it is other for other in rendered)]
    assert missing == []


def test_every_public_name_has_a_docstring() -> None:
    silent = [
        identifier
        for identifier in documented()
        if (inspect.isclass(it := resolve(identifier)) or inspect.isfunction(it)) and not it.__doc__
    ]
    assert silent == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_in_the_reference(name: str) -> None:
    page = (DOCS / "reference" / "commands.md").read_text(encoding="utf-8")
    assert f"$ attnlab {name} --help\n" in page
