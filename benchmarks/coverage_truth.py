"""The expected residual steps of one small network of every timm family.

The truth does not come from a data-flow graph. It comes from timm's sources: `coverage_adds.py`
says of every addition whether it is a residual step. This program imports timm with every `a + b`
and `a += b` rewritten so that it reports when it runs, makes one forward pass of each network, and
writes the steps it saw to `coverage_truth.json`. An addition of equal-shaped tensors that nobody
has classified is an error.

    python benchmarks/coverage_truth.py              # all families, rewrites coverage_truth.json
    python benchmarks/coverage_truth.py 'swin|vit'   # only those, prints, writes nothing

Stages: a stage is a maximal run of steps whose state has the same number of elements per sample; a
projection opens a new one.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import json
import operator
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent))
from coverage_adds import NOT_STEPS, OTHER_READINGS, STEPS
from coverage_variants import VARIANTS

HERE = Path(__file__).parent
BATCH = 2
Event = dict[str, Any]
"""One executed addition: place, text, owner, kind, elements per sample."""
OtherReadings = dict[tuple[str, str], tuple[tuple[str, ...], str]]


def passes(module: nn.Module) -> bool:
    """Whether a shortcut module hands its input through unchanged."""
    return isinstance(module, nn.Identity) or (
        isinstance(module, nn.Sequential) and all(passes(child) for child in module)
    )


class Recorder:
    """Collects the equal-shaped additions of one forward pass, in order of execution."""

    def __init__(self) -> None:
        self.names: dict[int, str] | None = None
        self.events: list[Event] = []
        self.unknown: set[str] = set()
        self.after: Callable[[Event, Tensor, Tensor, Tensor], None] | None = None
        """Called with each step's addition: the event, both operands, the sum."""

    def watch(self, model: nn.Module) -> None:
        self.names = {id(module): name for name, module in model.named_modules()}
        self.events, self.unknown = [], set()

    def add(self, place: str, text: str, a: Any, b: Any) -> Any:
        return self._run(operator.add, place, text, a, b)

    def iadd(self, place: str, text: str, a: Any, b: Any) -> Any:
        return self._run(operator.iadd, place, text, a, b)

    def _run(self, operation: Callable[..., Any], place: str, text: str, a: Any, b: Any) -> Any:
        if self.names is None or not (isinstance(a, Tensor) and isinstance(b, Tensor)):
            return operation(a, b)
        if a.shape != b.shape:
            return operation(a, b)
        values = {"passes": passes, **sys._getframe(2).f_locals}
        owner = self.names.get(id(values.get("self")), "?")
        kind = self._kind(place, text, values)
        event = {"place": place, "text": text, "owner": owner, "kind": kind}
        self.events.append({**event, "elements": a.numel() // BATCH})
        if self.after is None or kind == "none":
            return operation(a, b)
        operands = a.clone(), b.clone()
        total = operation(a, b)
        self.after(event, *operands, total)
        return total

    def _kind(self, place: str, text: str, values: dict[str, Any]) -> str:
        for start, condition in STEPS.get(place, []):
            if text.startswith(start):
                return "identity" if eval(condition, values) else "projection"
        if not any(text.startswith(start) for start, _ in NOT_STEPS.get(place, [])):
            self.unknown.add(f"{place}: {text}")
        return "none"


RECORDER = Recorder()


class Rewrite(ast.NodeTransformer):
    """`a + b` becomes `__attnlab_add__("module.Class", "a + b", a, b)`, and `a += b` likewise."""

    def __init__(self, module: str) -> None:
        self.path = [module]

    def _nested(self, node: Any) -> Any:
        self.path.append(node.name)
        self.generic_visit(node)
        self.path.pop()
        return node

    visit_ClassDef = visit_FunctionDef = _nested  # noqa: N815  (names fixed by NodeVisitor)

    def _call(self, name: str, node: ast.AST, left: ast.expr, right: ast.expr) -> ast.Call:
        path = self.path[:-1] if self.path[-1] == "forward" else self.path
        place, text = ast.Constant(".".join(path)), ast.Constant(ast.unparse(node))
        return ast.Call(ast.Name(name, ast.Load()), [place, text, left, right], [])

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        if not isinstance(node.op, ast.Add):
            return self.generic_visit(node)
        call = self._call("__attnlab_add__", node, node.left, node.right)
        return ast.copy_location(self.generic_visit(call), node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        if not isinstance(node.op, ast.Add) or not isinstance(node.target, ast.Name):
            return self.generic_visit(node)
        value = ast.Name(node.target.id, ast.Load())
        call = self._call("__attnlab_iadd__", node, value, node.value)
        assign = ast.Assign([ast.Name(node.target.id, ast.Store())], self.generic_visit(call))
        return ast.copy_location(assign, node)


class Loader(importlib.machinery.SourceFileLoader):
    def source_to_code(self, data: Any, path: Any, **_: Any) -> CodeType:  # type: ignore[override]
        tree = Rewrite(Path(path).stem).visit(ast.parse(data))
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)  # never from the bytecode cache

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__attnlab_add__"] = RECORDER.add
        module.__dict__["__attnlab_iadd__"] = RECORDER.iadd
        super().exec_module(module)


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if not name.startswith(("timm.models", "timm.layers")):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin is not None and spec.origin.endswith(".py"):
            spec.loader = Loader(name, spec.origin)
        return spec


def plan(events: list[Event]) -> dict[str, Any]:
    """Number of steps, length of each stage, kinds, and the steps as `owner kind elements`."""
    stages: list[int] = []
    previous = None
    for event in events:
        if event["elements"] != previous or event["kind"] == "projection":
            stages.append(0)
        stages[-1] += 1
        previous = event["elements"]
    kinds = [event["kind"] for event in events]
    return {
        "steps": len(events),
        "stages": stages,
        "identity": kinds.count("identity"),
        "projection": kinds.count("projection"),
        "sequence": [f"{event['owner']} {event['kind']} {event['elements']}" for event in events],
    }


def readings(events: list[Event], others: OtherReadings) -> Iterator[tuple[list[str], list[Event]]]:
    """Every accepted reading of a run, the one that counts first: why it differs, and its steps."""

    def other(event: Event) -> tuple[str, str] | None:
        for place, start in others:
            if event["place"] == place and event["text"].startswith(start):
                return place, start
        return None

    keys = sorted({key for event in events if (key := other(event))})
    for choice in product(*[(None, *others[key][0]) for key in keys]):
        chosen = {key: kind for key, kind in zip(keys, choice, strict=True) if kind}
        read = [{**event, "kind": chosen.get(other(event), event["kind"])} for event in events]
        reasons = sorted({others[key][1] for key in chosen})
        yield reasons, [event for event in read if event["kind"] != "none"]


def expect(create: Callable[..., nn.Module], variant: dict[str, Any]) -> dict[str, Any]:
    """The truth for one network."""
    torch.manual_seed(0)
    model = create(variant["model"], pretrained=False, **variant["options"]).eval()
    RECORDER.watch(model)
    with torch.no_grad():
        model(torch.randn(BATCH, *variant["input"]))
    if RECORDER.unknown:
        raise RuntimeError(
            f"{variant['model']}: not classified: " + "; ".join(sorted(RECORDER.unknown))
        )
    (_, first), *others = readings(RECORDER.events, OTHER_READINGS)
    accepted = [{**plan(steps), "because": reasons} for reasons, steps in others]
    return {**variant, **plan(first), "accepted": accepted}


def main() -> None:
    assert "timm" not in sys.modules
    warnings.simplefilter("ignore")
    sys.meta_path.insert(0, Finder())
    import timm

    pattern = sys.argv[1] if len(sys.argv) > 1 else None
    truth, failed = [], []
    for variant in VARIANTS:
        if pattern and not re.search(pattern, f"{variant['family']} {variant['model']}"):
            continue
        try:
            row = expect(timm.create_model, variant)
        except Exception as error:
            failed.append(f"{variant['family']}: {type(error).__name__}: {error}")
            print("FAILED", failed[-1], flush=True)
            continue
        truth.append(row)
        print(
            f"{row['family']:24} {row['model']:36} {row['steps']:4} "
            f"i{row['identity']} p{row['projection']} {row['stages']} +{len(row['accepted'])}",
            flush=True,
        )
    if failed:
        sys.exit(f"{len(failed)} failed")
    if not pattern:
        lines = ",\n".join(json.dumps(row) for row in truth)
        (HERE / "coverage_truth.json").write_text(
            f'{{"timm": "{timm.__version__}", "networks": [\n{lines}\n]}}\n'
        )


if __name__ == "__main__":
    main()
