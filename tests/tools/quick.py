"""`make quick`: the tests that a change reaches, without the slow ones.

A change of src/attnlab/ROOM/FOLDER reaches tests/ROOM/FOLDER, or tests/ROOM where that has no
folder of its own; a changed test reaches itself. The rooms' walls are always looked at.

Usage: python -m tests.tools.quick [BASE]   (what counts as changed is all since BASE, HEAD if
left out, and files that git does not track yet)
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
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
        elif path.parts[:2] == ("src", "attnlab") and len(path.parts) > 3:
            found |= {_folder(Path("tests", *path.parts[2:-1]), root): None}
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
