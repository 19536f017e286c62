"""What the package hands out is not changed afterwards: its dataclasses are frozen."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import attnlab

PACKAGE = Path(attnlab.__file__).parent
CHANGED_IN_PLACE = {
    "data/memory.py: Pixels",
    "evolution/device/contest.py: _Entry",
    "instruments/stripe/history.py: GateHistory",
    "lab/study/executors/local.py: _Running",
    "lab/training/state.py: State",
    "residuals/graph.py: Node",
    "surgery/folding/_fit.py: _Energy",
    "surgery/folding/_taps.py: Tap",
    "surgery/folding/_walk.py: _Attempt",
    "surgery/insertion/_hosted.py: Hosted",
    "surgery/insertion/_marked.py: GatedAddition",
    "surgery/repair/_progress.py: Progress",
}
"""Those that something fills or counts up while it runs."""


def thawed() -> Iterator[str]:
    """The dataclasses that are not frozen."""
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            for each in node.decorator_list if isinstance(node, ast.ClassDef) else ():
                text = ast.unparse(each)
                if text.startswith("dataclass") and "frozen=True" not in text:
                    yield f"{file.relative_to(PACKAGE).as_posix()}: {node.name}"


def test_a_dataclass_is_frozen_unless_it_is_changed_in_place() -> None:
    assert set(thawed()) == CHANGED_IN_PLACE
