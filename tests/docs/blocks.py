"""The fenced blocks of a page, and the pages of the documentation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)(?P<rest>.*)$")


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    title: str | None
    """The file that the block is, from `title="NAME"` after the language."""
    lines: tuple[str, ...]
    """Its text, without the indentation of the fence."""
    line: int
    """Line of the page, from 1, at which the text begins."""
    indent: str

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)


def blocks_of(text: str) -> list[Block]:
    """The fenced blocks of a page, top to bottom."""
    found: list[Block] = []
    lines = text.splitlines()
    start = 0
    opening: re.Match[str] | None = None
    for number, line in enumerate(lines):
        if opening is None:
            opening, start = _FENCE.match(line), number + 1
        elif line.rstrip() == f"{opening['indent']}```":
            title = re.search(r'title="([^"]+)"', opening["rest"])
            found.append(
                Block(
                    opening["language"],
                    title[1] if title else None,
                    tuple(row.removeprefix(opening["indent"]) for row in lines[start:number]),
                    start + 1,
                    opening["indent"],
                )
            )
            opening = None
    if opening is not None:
        raise ValueError(f"The block that begins at line {start} has no end.")
    return found


def with_lines(text: str, replaced: dict[Block, list[str]]) -> str:
    """The page with the lines of some blocks replaced."""
    lines = text.splitlines()
    for block in sorted(replaced, key=lambda block: block.line, reverse=True):
        new = [f"{block.indent}{line}".rstrip() for line in replaced[block]]
        lines[block.line - 1 : block.line - 1 + len(block.lines)] = new
    return "".join(f"{line}\n" for line in lines)


def pages() -> list[Path]:
    """README.md and every page under docs."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
