"""How many small mistakes in the core do its tests notice?

    python -m tests.tools.mutate --number 200 --out mutants.json

Takes places of the core at random (the same each time), makes one small mistake at each (another
comparison, sign, number or truth value), and runs the tests of that file, then all of its room. A
mistake that no test notices is printed: either a test is missing, or it makes no difference. Not
part of CI: it takes an hour. Processes are forked from one that has imported torch, so that each
takes little time. `--again mutants.json` tries those that survived in that file.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS: dict[str, tuple[str, ...]] = {
    "residuals/where.py": ("tests/residuals/test_where.py",),
    "residuals/steps.py": ("tests/residuals/test_steps.py", "tests/residuals/test_additions.py"),
    "residuals/_detect.py": ("tests/residuals/test_steps.py", "tests/residuals/test_additions.py"),
    "residuals/choose.py": (
        "tests/surgery/insertion/test_place.py",
        "tests/residuals/test_where.py",
    ),
    "surgery/insertion/insert.py": (
        "tests/surgery/insertion/test_insert.py",
        "tests/surgery/insertion/test_place.py",
    ),
    "surgery/change.py": (
        "tests/surgery/insertion/test_outputs.py",
        "tests/surgery/insertion/test_insert.py",
    ),
    "residuals/watching.py": ("tests/residuals/test_watching.py",),
    "surgery/folding/_rules.py": (
        "tests/surgery/folding/test_layers.py",
        "tests/surgery/folding/test_refusals.py",
    ),
    "surgery/folding/_layer_rules.py": (
        "tests/surgery/folding/test_layers.py",
        "tests/surgery/folding/test_refusals.py",
    ),
    "surgery/folding/_walk.py": (
        "tests/surgery/folding/test_layers.py",
        "tests/surgery/folding/test_refusals.py",
    ),
    "surgery/folding/_flow.py": (
        "tests/surgery/folding/test_layers.py",
        "tests/surgery/folding/test_refusals.py",
    ),
    "surgery/folding/_means.py": ("tests/surgery/folding/test_constants.py",),
    "surgery/folding/fold.py": (
        "tests/surgery/folding/test_constants.py",
        "tests/surgery/folding/test_fuse.py",
        "tests/surgery/folding/test_budget.py",
    ),
    "instruments/stiffness/metrics.py": (
        "tests/instruments/stiffness/test_metrics.py",
        "tests/instruments/stiffness/test_total.py",
    ),
    "instruments/stiffness/conventions.py": ("tests/instruments/stiffness/test_conventions.py",),
    "instruments/stiffness/norms.py": ("tests/instruments/stiffness/test_norms.py",),
    "instruments/stiffness/grid.py": ("tests/instruments/stiffness/test_grid.py",),
    "instruments/stiffness/total.py": ("tests/instruments/stiffness/test_total.py",),
    "instruments/stiffness/stages.py": (
        "tests/instruments/stiffness/test_total.py",
        "tests/instruments/stiffness/test_plans.py",
    ),
    "gates/_shared.py": (
        "tests/gates/test_references.py",
        "tests/gates/test_registry.py",
    ),
    "gates/asr.py": ("tests/gates/test_asr.py",),
    "gates/step.py": ("tests/gates/test_step.py", "tests/gates/test_references.py"),
    "gates/registry.py": ("tests/gates/test_registry.py",),
    "lab/statistics/paired.py": ("tests/lab/statistics/test_statistics.py",),
    "lab/statistics/anytime.py": ("tests/lab/statistics/test_anytime.py",),
    "lab/study/history.py": ("tests/lab/study/test_history.py",),
    "results/run.py": ("tests/lab/study/test_damage.py",),
    "_checked.py": ("tests/test_bad_inputs.py",),
    "data/memory.py": ("tests/data/test_images.py", "tests/data/test_load.py"),
    "results/checkpoints.py": ("tests/lab/training/test_checkpoint.py",),
}
"""The files of the core, and the tests that should notice a mistake there; they run first."""

_COMPARE: dict[type, type] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}


def mistakes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Nodes to put in the place of `node`, each with what is changed."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARE:
        changed = copy.deepcopy(node)
        changed.ops[0] = _COMPARE[type(node.ops[0])]()
        yield "comparison", changed
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        changed_op = copy.deepcopy(node)
        changed_op.op = _ARITHMETIC[type(node.op)]()
        yield "arithmetic", changed_op
    if isinstance(node, ast.BoolOp):
        changed_bool = copy.deepcopy(node)
        changed_bool.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "and or", changed_bool
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield "not or minus left out", node.operand
    if isinstance(node, ast.IfExp):
        changed_if = copy.deepcopy(node)
        changed_if.body, changed_if.orelse = changed_if.orelse, changed_if.body
        yield "if else turned round", changed_if
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield "number", ast.Constant(node.value + 1)
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "truth value", ast.Constant(not node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _NAMES:
        changed_call = copy.deepcopy(node)
        changed_call.func = ast.Name(_NAMES[node.func.id], ast.Load())
        yield node.func.id, changed_call


class _Put(ast.NodeTransformer):
    def __init__(self, place: int, new: ast.AST) -> None:
        self.place, self.new, self.seen = place, new, -1

    def generic_visit(self, node: ast.AST) -> ast.AST:
        self.seen += 1
        return self.new if self.seen == self.place else super().generic_visit(node)


def places(source: str) -> list[tuple[int, int, str, str]]:
    """(line, number of the node, what is changed, the whole file with the mistake)."""
    found = []
    tree = ast.parse(source)
    for number, node in enumerate(_in_order(tree)):
        for what, new in mistakes(node):
            changed = _Put(number, new).visit(copy.deepcopy(tree))
            text = ast.unparse(ast.fix_missing_locations(changed))
            said = f"{what}: {ast.unparse(node)[:60]} -> {ast.unparse(new)[:60]}"
            found.append((getattr(node, "lineno", 0), number, said, text))
    return found


def _in_order(tree: ast.AST) -> list[ast.AST]:
    seen: list[ast.AST] = []

    class Visitor(ast.NodeVisitor):
        def generic_visit(self, node: ast.AST) -> None:
            seen.append(node)
            super().generic_visit(node)

    Visitor().visit(tree)
    return seen


def notices(folder: Path, tests: tuple[str, ...], seconds: float) -> str:
    """How the tests end on the package in `folder`: "passed", "failed" or "too long"."""
    child = os.fork()
    if child == 0:
        os.setsid()
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
            code = int(pytest.main(["-xq", "-W", imported, "-p", "no:cacheprovider", *tests]))
        finally:
            os._exit(code)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return "passed" if status == 0 else "failed"
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "too long"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="files whose name contains this")
    parser.add_argument("--again", type=Path, help="what survived in this file of an earlier run")
    parser.add_argument("--out", type=Path, default=Path("mutants.json"))
    given = parser.parse_args()
    import timm  # noqa: F401
    import torch  # noqa: F401
    import torchmetrics  # noqa: F401
    import torchvision  # noqa: F401

    assert not any(name == "attnlab" for name in sys.modules)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shutil.copytree(ROOT / "src" / "attnlab", folder / "attnlab")
        files = [name for name in TESTS if given.only in name]
        sources = {name: (folder / "attnlab" / name).read_text(encoding="utf-8") for name in files}
        every = [(name, *place) for name in files for place in places(sources[name])]
        if given.again is None:
            chosen = random.Random(given.seed).sample(every, min(given.number, len(every)))
        else:
            records = json.loads(given.again.read_text())
            left = {(r["file"], r["line"], r["change"]) for r in records if r["ended"] == "passed"}
            chosen = [each for each in every if (each[0], each[1], each[3]) in left]
        print(f"{len(every)} places, {len(chosen)} to try", flush=True)
        _run(folder, sources, sorted(chosen), given.out)


def _rooms(name: str) -> tuple[tuple[str, ...], ...]:
    """The tests of a file, then all those of the rooms that they are in."""
    rooms = tuple(dict.fromkeys(test.rpartition("/")[0] for test in TESTS[name]))
    return (TESTS[name],) if rooms == ("tests",) else (TESTS[name], rooms)


def _run(
    folder: Path, sources: dict[str, str], chosen: list[tuple[str, int, int, str, str]], out: Path
) -> None:
    usual: dict[tuple[str, ...], float] = {}
    records = []
    for name, line, _, said, text in chosen:
        file = folder / "attnlab" / name
        for tests in _rooms(name):
            if tests not in usual:
                began = time.monotonic()
                assert notices(folder, tests, 1200) == "passed", f"{tests} fail without a mistake"
                usual[tests] = time.monotonic() - began
            file.write_text(text, encoding="utf-8")
            ended = notices(folder, tests, 30 + 5 * usual[tests])
            file.write_text(sources[name], encoding="utf-8")
            if ended != "passed":
                break
        records.append({"file": name, "line": line, "change": said, "ended": ended})
        killed = sum(record["ended"] != "passed" for record in records)
        mark = "SURVIVED" if ended == "passed" else "killed"
        print(f"{killed}/{len(records)}  {mark}  {name}:{line}  {said}", flush=True)
        out.write_text(json.dumps(records, indent=1))
    print(f"{len(records)} tried, {killed} noticed")


if __name__ == "__main__":
    main()
