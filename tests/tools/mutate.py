"""How many small mistakes in the core do its tests notice?

    python -m tests.tools.mutate --number 200 --out mutants.json

Takes places of the core at random (the same each time, from all rooms in turn), makes one small
mistake at each (another comparison, sign, number, axis or truth value, arguments swapped, a term
dropped, something kept that should be made anew), and runs the quick tests of that file, then all
of its room. A test that fails is run again without the mistake. A mistake that no test notices is
printed: either a test is missing, or it makes no difference. Not part of CI: it takes an hour.
Processes are forked from one that has imported torch, so that each takes little time. `--kind`
chooses kinds of mistakes, `--near` runs the quick tests of the file only, and
`--again mutants.json` tries those that survived in that file.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from tests.tools.mistakes import mistakes, without_effect
from tests.tools.tests_of_files import EVERYWHERE, TESTS

ROOT = Path(__file__).parents[2]


class _Put(ast.NodeTransformer):
    def __init__(self, place: int, new: ast.AST) -> None:
        self.place, self.new, self.seen = place, new, -1

    def generic_visit(self, node: ast.AST) -> ast.AST:
        self.seen += 1
        return self.new if self.seen == self.place else super().generic_visit(node)


class Mistake(NamedTuple):
    """One small mistake in a file."""

    file: str
    line: int
    said: str
    node: int
    """The number of the node, in the order of visiting."""
    new: ast.AST

    def written(self, source: str) -> str:
        """The whole file with it."""
        changed = _Put(self.node, self.new).visit(ast.parse(source))
        return ast.unparse(ast.fix_missing_locations(changed))


def places(file: str, source: str, kind: str) -> list[Mistake]:
    """All mistakes of a kind that can be made in a file."""
    found = []
    tree = ast.parse(source)
    idle = without_effect(tree)
    for number, node in enumerate(_in_order(tree)):
        for what, new in () if id(node) in idle else mistakes(node):
            if kind in what:
                said = f"{what}: {_shown(node)} -> {_shown(new)}"
                found.append(Mistake(file, getattr(node, "lineno", 0), said, number, new))
    return found


def _shown(node: ast.AST) -> str:
    return ast.unparse(ast.fix_missing_locations(copy.deepcopy(node)))[:60]


def spread(every: list[Mistake], number: int, seed: int) -> list[Mistake]:
    """So many of them at random, from all rooms in turn."""
    drawn = random.Random(seed)
    rooms: dict[str, list[Mistake]] = {}
    for each in drawn.sample(every, len(every)):
        rooms.setdefault("/".join(each.file.split("/")[:-1]), []).append(each)
    in_turn = [each for row in zip_longest(*rooms.values()) for each in row if each is not None]
    return in_turn[:number]


def _in_order(tree: ast.AST) -> list[ast.AST]:
    seen: list[ast.AST] = []

    class Visitor(ast.NodeVisitor):
        def generic_visit(self, node: ast.AST) -> None:
            seen.append(node)
            super().generic_visit(node)

    Visitor().visit(tree)
    return seen


class Ended(NamedTuple):
    """How a run of tests ended."""

    how: str
    """ "passed", "failed" or "too long"."""
    failed: str
    """The test that failed, or the file that could not be read."""


class _Failed:
    """A plugin that writes down what failed first."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.file.exists():
            self.file.write_text(report.nodeid, encoding="utf-8")

    pytest_collectreport = pytest_runtest_logreport


def notices(folder: Path, tests: tuple[str, ...], seconds: int) -> Ended:
    """How the tests end on the package in `folder`, in so many seconds of a core."""
    report = folder / "failed"
    report.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        os.chdir(ROOT)
        sys.path[:0] = [str(folder), str(ROOT)]
        os.environ["PYTHONPATH"] = str(folder)
        import pytest

        code = 1
        try:
            imported = "ignore::pytest.PytestAssertRewriteWarning"  # plugins, before the fork
            given = ["-xq", "-W", imported, "-p", "no:cacheprovider", *tests]
            code = int(pytest.main(given, plugins=[_Failed(report)]))
        finally:
            os._exit(0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else code)
    end = time.monotonic() + 5 * seconds  # a sleeping test takes no core, and others may be busy
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
            return Ended("too long", "")
        if done:
            failed = report.read_text(encoding="utf-8") if report.exists() else ""
            return Ended("passed" if status == 0 else "failed", failed)
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return Ended("too long", "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="files whose name contains this")
    parser.add_argument("--kind", default="", help="mistakes whose kind contains this")
    parser.add_argument("--near", action="store_true", help="run only the quick tests of the file")
    parser.add_argument("--again", type=Path, help="what survived in this file of an earlier run")
    parser.add_argument("--out", type=Path, default=Path("mutants.json"))
    given = parser.parse_args()
    import pytest  # noqa: F401
    import scipy.stats  # noqa: F401
    import timm  # noqa: F401
    import torch._dynamo  # noqa: F401
    import torchmetrics  # noqa: F401
    import torchvision  # noqa: F401
    import transformers  # noqa: F401

    assert not any(name == "attnlab" for name in sys.modules)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shutil.copytree(ROOT / "src" / "attnlab", folder / "attnlab")
        files = [name for name in TESTS if given.only in name]
        sources = {name: (folder / "attnlab" / name).read_text(encoding="utf-8") for name in files}
        every = [each for name in files for each in places(name, sources[name], given.kind)]
        if given.again is None:
            chosen = spread(every, given.number, given.seed)
        else:
            records = json.loads(given.again.read_text())
            left = {
                (r["file"], r["line"], r["change"])
                for r in records
                if r["ended"] not in ("failed", "too long")
            }
            chosen = [each for each in every if each[:3] in left]
        print(f"{len(every)} places, {len(chosen)} to try", flush=True)
        _run(folder, sources, chosen, given.out, near=given.near)


def _rooms(name: str, near: bool) -> dict[tuple[str, ...], int]:
    """The quick tests of a file, then all those of the rooms that its tests are in, each with the
    seconds of a core after which it is stopped."""
    rooms = tuple(dict.fromkeys(test.rpartition("/")[0] for test in TESTS[name]))
    quick = {("-m", "not slow", *TESTS[name], *EVERYWHERE): 300}
    return quick if near else quick | {TESTS[name] if rooms == ("tests",) else rooms: 900}


def _run(
    folder: Path, sources: dict[str, str], chosen: list[Mistake], out: Path, *, near: bool
) -> None:
    without: dict[tuple[str, ...], str] = {}
    records = []
    for mistake in chosen:
        name, line, said = mistake[:3]
        file = folder / "attnlab" / name
        text = mistake.written(sources[name])
        for tests, seconds in _rooms(name, near).items():
            file.write_text(text, encoding="utf-8")
            ended, failed = notices(folder, tests, seconds)
            file.write_text(sources[name], encoding="utf-8")
            if ended == "passed":
                continue
            alone = (failed,) if "::" in failed else ("--collect-only", failed)
            again = alone if failed else tests
            if again not in without:
                without[again] = notices(folder, again, seconds).how
            if without[again] == "passed":
                break
            ended = f"{without[again]} without a mistake"
        records.append({"file": name, "line": line, "change": said, "ended": ended, "by": failed})
        noticed = sum(record["ended"] in ("failed", "too long") for record in records)
        mark = "SURVIVED" if ended == "passed" else ended
        print(f"{noticed}/{len(records)}  {mark}  {name}:{line}  {said}  {failed}", flush=True)
        out.write_text(json.dumps(records, indent=1))
    print(f"{len(records)} tried, {noticed} noticed")


if __name__ == "__main__":
    main()
