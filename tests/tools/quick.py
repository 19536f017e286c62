"""`make quick`: the tests that a change reaches, without the slow ones.

A change of src/attnlab/ROOM/FOLDER reaches tests/ROOM/FOLDER, or the tests of ROOM that are in no
folder, and the few tests elsewhere that import the changed file by name; a changed test reaches
itself. The rooms' walls are always looked at.

Usage: python -m tests.tools.quick [BASE]   (what counts as changed is all since BASE, HEAD if
left out, and files that git does not track yet)
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_IMPORTERS = 6
"""A dozen files of tests take more than a minute."""
ALWAYS = ("tests/test_rooms.py", "tests/test_import.py")


def changed(base: str) -> list[str]:
    """The files that differ from `base`, and those that git does not track yet."""
    lines = [_git("diff", "--name-only", base), _git("ls-files", "-o", "--exclude-standard")]
    return sorted({name for text in lines for name in text.splitlines()})


def reached(files: Iterable[str], root: Path = ROOT) -> list[str]:
    """The tests that a change of `files` reaches."""
    found = dict.fromkeys(ALWAYS)
    for name in files:
        path = Path(name)
        if path.parts[:1] == ("tests",) and path.name.startswith("test_"):
            found |= {name: None} if (root / path).is_file() else {}
        elif path.parts[:2] == ("src", "attnlab"):
            folder = _folder(Path("tests", *path.parts[2:-1]), root) if path.parts[3:] else ""
            found |= dict.fromkeys([*_inside(folder, root), *_importers(path, folder, root)])
        elif path.parts[:1] == ("docs",) or path.name == "README.md":
            found |= {"tests/docs/test_documents.py": None}
    return [each for each in found if each]


def _folder(wanted: Path, root: Path) -> str:
    """The nearest folder of tests, from the inside out; empty if the room has none."""
    while wanted.parts[1:]:
        if (root / wanted).is_dir():
            return wanted.as_posix()
        wanted = wanted.parent
    return ""


def _inside(folder: str, root: Path) -> list[str]:
    """The folder, or of one whose tests are in folders of their own those that are in none."""
    within = sorted((root / folder).iterdir()) if folder else []
    if not any(each.is_dir() and list(each.glob("test_*.py")) for each in within):
        return [folder]
    return [f"{folder}/{each.name}" for each in within if each.match("test_*.py")]


def _importers(path: Path, folder: str, root: Path) -> list[str]:
    """The tests outside of `folder` that import the file at `path`, or its folder; none if they are
    many, as for the errors: then it is a matter of the whole suite."""
    module = ".".join(path.with_suffix("").parts[1:]).removesuffix(".__init__")
    package = module.rpartition(".")[0] if module.count(".") > 2 else module
    names = "|".join(map(re.escape, {module, package}))
    imports = re.compile(rf"^\s*(?:from|import) (?:{names})\b(?!\.)", re.MULTILINE)
    found = [
        test.relative_to(root).as_posix()
        for test in sorted((root / "tests").rglob("test_*.py"))
        if imports.search(test.read_text(encoding="utf-8"))
    ]
    outside = [name for name in found if not (folder and name.startswith(f"{folder}/"))]
    return outside if len(outside) <= MOST_IMPORTERS else []


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


def main() -> int:
    """Run them with two processes; the exit code is pytest's."""
    tests = reached(changed(sys.argv[1] if len(sys.argv) > 1 else "HEAD"))
    print("reached:", *tests)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-m", "not slow", *tests]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    raise SystemExit(main())
