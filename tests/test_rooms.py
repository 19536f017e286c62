"""Who may know whom: the rooms of the house, and no room's private names outside of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "attnlab"

# A room may import those that it knows, and the root. Nothing points backwards.
KNOWS = {
    "gates": set(),
    # A result shows itself: as a table, figures and a page.
    "results": {"page"},
    "page": set(),
    "residuals": {"gates"},
    # A receipt is a result: it shows itself as a table and as a page.
    "surgery": {"gates", "page", "residuals", "results"},
    "evolution": {"surgery"},
    "testing": {"gates", "surgery"},
    # A file says which operators took the place of convolutions.
    "networks": {"evolution", "residuals", "surgery"},
    # Images are prepared as a network was trained with them.
    "data": {"networks"},
    "tasks": {"data", "networks", "results"},
    "subject": {"data", "networks", "residuals", "results", "surgery", "tasks"},
    "instruments": {
        "data",
        "gates",
        "networks",
        "page",
        "residuals",
        "results",
        "subject",
        "surgery",
        "tasks",
    },
    "lab": {
        "data",
        "gates",
        "instruments",
        "networks",
        "page",
        "residuals",
        "results",
        "subject",
        "surgery",
        "tasks",
    },
    "bridges": {
        "data",
        "gates",
        "instruments",
        "networks",
        "residuals",
        "results",
        "surgery",
        "tasks",
    },
}
# The root's own modules that know rooms; the commands know everyone; only where they begin knows
# them.
ROOT_KNOWS = {"timing": {"residuals"}, "__main__": {"cli"}}
NOBODY_KNOWS = {"cli"}


class Import(NamedTuple):
    file: Path
    room: str
    target: str
    """The room or root module that is imported."""
    path: tuple[str, ...]
    """The parts behind it: modules and names."""


def imports() -> Iterator[Import]:
    for file in sorted(PACKAGE.rglob("*.py")):
        inside = file.relative_to(PACKAGE)
        room = inside.parts[0] if len(inside.parts) > 1 else inside.stem
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for name in names:
                package, *path = name.split(".")
                if package == "attnlab" and path and path[0] != room:
                    yield Import(inside, room, path[0], tuple(path[1:]))


FOUND = list(imports())
ROOMS = {folder.name for folder in PACKAGE.iterdir() if (folder / "__init__.py").is_file()}


def test_every_room_is_in_the_table() -> None:
    assert ROOMS - {"cli"} == KNOWS.keys()


def test_the_table_points_nowhere_backwards() -> None:
    """An order exists in which every room comes after those that it knows."""
    left, order = dict(KNOWS), []
    while left:
        ready = [room for room, known in left.items() if known <= set(order)]
        assert ready, f"these know each other in a circle: {sorted(left)}"
        order += ready
        for room in ready:
            del left[room]


@pytest.mark.parametrize("room", sorted(KNOWS))
def test_a_room_knows_no_more_than_the_table_says(room: str) -> None:
    known = {(each.file.as_posix(), each.target) for each in FOUND if each.room == room}
    wrong = sorted((f, t) for f, t in known if t in ROOMS and t not in KNOWS[room])
    assert wrong == []


def test_what_the_table_allows_is_used() -> None:
    used = {(each.room, each.target) for each in FOUND}
    unused = [(a, b) for a, known in KNOWS.items() for b in known if (a, b) not in used]
    assert unused == []


def test_modules_of_the_root_know_no_room() -> None:
    found = {(e.room, e.target) for e in FOUND if e.room not in ROOMS and e.target in ROOMS}
    allowed = {(a, b) for a, known in ROOT_KNOWS.items() for b in known}
    assert {(a, b) for a, b in found if a != "__init__"} == allowed


def test_nobody_knows_the_commands() -> None:
    outside = [e for e in FOUND if e.target in NOBODY_KNOWS and e.room not in ("cli", "__main__")]
    assert outside == []


def test_no_private_name_leaves_its_room() -> None:
    """A name with an underscore, of a module or in it, belongs to its room."""
    private = [
        (each.file.as_posix(), ".".join((each.target, *each.path)))
        for each in FOUND
        if each.target in ROOMS and any(part.startswith("_") for part in each.path)
    ]
    assert private == []


def test_no_name_means_two_things() -> None:
    """A public class or function is defined in one file only, so that its name says which it is."""
    found: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            named = isinstance(node, ast.ClassDef | ast.FunctionDef)
            if named and not node.name.startswith("_"):
                found.setdefault(node.name, set()).add(str(path.relative_to(PACKAGE)))
    assert {name: files for name, files in found.items() if len(files) > 1} == {}
