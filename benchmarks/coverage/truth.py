"""The expected residual steps of networks, from their packages' sources.

The truth does not come from a data-flow graph: `data/additions.toml` says of every addition in the
sources, read by hand, whether it is a residual step. `truth` runs each network on two inputs and
asks of every addition of two equal-shaped tensors which expression of which source line made it.
One that nobody has classified is an error.

A stage is a maximal run of steps whose state has the same number of elements per sample; a
projection opens a new one.
"""

from __future__ import annotations

import ast
import gc
import linecache
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from benchmarks._common import Table, settings, write_json
from benchmarks.coverage.networks import (
    BATCH,
    Expected,
    Network,
    Reading,
    call,
    chosen,
    collection,
    write_collection,
)

TORCH = os.path.dirname(torch.__file__) + os.sep
ADDITIONS = frozenset(
    (torch.add, Tensor.add, Tensor.add_, Tensor.__add__, Tensor.__radd__, Tensor.__iadd__)
)


class Rules(NamedTuple):
    """`data/additions.toml`, by place."""

    steps: dict[str, list[tuple[str, str]]]
    """Start of the expression, and the condition for an identity shortcut, or another kind."""
    not_steps: dict[str, list[str]]
    """Starts of expressions."""
    other: dict[tuple[str, str], tuple[list[str], str]]
    """By place and start: the other kinds that are accepted, and why."""
    texts: dict[str, bool]
    """By the whole expression, in any place of transformers: whether it is a step."""


@cache
def rules() -> Rules:
    """Read the classification."""
    data = settings("additions")
    steps = {place: [(s, c) for s, c in pairs] for place, pairs in data["steps"].items()}
    for package, names in data["identity"].items():
        steps |= {f"{package}.{name}": [("", "True")] for name in names.split()}
    not_steps: dict[str, list[str]] = {}
    for places in data["not_steps"].values():
        for text in places:
            place, _, start = text.partition(": ")
            not_steps.setdefault(place, []).append(start)
    other = {
        (place, start): (group["kinds"], group["because"])
        for group in data["other"]
        for place, start in group["places"]
    }
    texts = dict.fromkeys(data["texts"]["steps"], True)
    texts |= dict.fromkeys(data["texts"]["not_steps"], False)
    return Rules(steps, not_steps, other, texts)


@dataclass(frozen=True)
class Addition:
    """One executed addition of equal-shaped tensors."""

    place: str
    text: str
    owner: str
    """The module that made it."""
    kind: str
    """identity, projection, mixed, or none: not a step."""
    elements: int
    """Per sample."""


def passes(module: nn.Module) -> bool:
    """Say whether a shortcut module hands its input through unchanged."""
    return isinstance(module, nn.Identity) or (
        isinstance(module, nn.Sequential) and all(passes(child) for child in module)
    )


class Listener(TorchFunctionMode):
    """Collects the equal-shaped additions of one forward pass, in order of execution.

    `heard` is called with every step's addition: the addition, both operands, the sum.
    """

    def __init__(
        self, model: nn.Module, heard: Callable[[Addition, Tensor, Tensor, Tensor], object]
    ) -> None:
        super().__init__()
        self.names = {id(module): name for name, module in model.named_modules()}
        self.additions: list[Addition] = []
        self.unknown: dict[str, str] = {}
        self._heard = heard

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if function in ADDITIONS and len(args) == 2 and all(isinstance(a, Tensor) for a in args):
            a, b = args
            if a.shape == b.shape and a.is_floating_point():
                return self._listen(_caller(sys._getframe(1)), function, a, b, kwargs or {})
        return function(*args, **(kwargs or {}))

    def _listen(
        self, frame: FrameType, function: Any, a: Tensor, b: Tensor, options: dict[str, Any]
    ) -> Tensor:
        place, text = _place(frame), _expression(frame)
        kind = self._kind(place, text, frame)
        one = Addition(place, text, self._owner(frame), kind, a.numel() // BATCH)
        self.additions.append(one)
        if kind == "none":
            return function(a, b, **options)
        operands = a.clone(), b.clone()  # an addition in place changes the first
        total: Tensor = function(a, b, **options)
        self._heard(one, *operands, total)
        return total

    def _kind(self, place: str, text: str, frame: FrameType) -> str:
        for start, condition in rules().steps.get(place, []):
            if text.startswith(start):
                values = {"passes": passes, **frame.f_locals}
                kind = eval(condition, values)
                return kind if isinstance(kind, str) else ("identity" if kind else "projection")
        if any(text.startswith(start) for start in rules().not_steps.get(place, [])):
            return "none"
        if place.startswith("transformers.") and text in rules().texts:
            return "identity" if rules().texts[text] else "none"
        self.unknown[f"{place}: {text}"] = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        return "none"

    def _owner(self, frame: FrameType | None) -> str:
        """Return the module that was called last: the nearest `nn.Module.__call__`."""
        while frame is not None:
            if frame.f_code.co_name == "_call_impl":
                module = frame.f_locals["self"]
                if id(module) in self.names:
                    return self.names[id(module)]
            frame = frame.f_back
        return "?"


def _caller(frame: FrameType) -> FrameType:
    """Return the source that made the addition: not torch itself, except for its own layers, nor a
    mode that adds in the source's place, as attnlab does where a gate acts on an addition."""
    while True:
        path = frame.f_code.co_filename
        layer = path.startswith(os.path.join(TORCH, "nn", "modules"))
        mode = frame.f_code.co_name == "__torch_function__"
        if not mode and path != __file__ and (layer or not path.startswith(TORCH)):
            return frame
        assert frame.f_back is not None
        frame = frame.f_back


def _place(frame: FrameType) -> str:
    name = f"{frame.f_globals['__name__']}.{frame.f_code.co_qualname}".removesuffix(".forward")
    name = re.sub(r"^timm\.(models|layers)\.", "timm.", name)
    return re.sub(r"^transformers\.models\.\w+\.modeling_", "transformers.", name)


def _expression(frame: FrameType) -> str:
    """Return the expression or statement that is being executed, as `ast.unparse` prints it."""
    place = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    line, last_line, column, last_column = place
    assert line is not None
    assert last_line is not None
    lines = [
        linecache.getline(frame.f_code.co_filename, number).encode()
        for number in range(line, last_line + 1)
    ]
    lines[-1] = lines[-1][:last_column]
    lines[0] = lines[0][column:]
    text = b"".join(lines).decode()
    try:
        return ast.unparse(ast.parse(f"({text})", mode="eval"))
    except SyntaxError:
        return ast.unparse(ast.parse(text))


def listened(
    model: nn.Module, example: Any, heard: Callable[[Addition, Tensor, Tensor, Tensor], object]
) -> Listener:
    """Run a network once with its additions reporting."""
    listener = Listener(model, heard)
    with torch.no_grad(), listener:
        call(model, example)
    return listener


def _depending(additions: list[Addition], one: list[Tensor], other: list[Tensor]) -> list[Addition]:
    """Leave out the steps whose sums are the same in two runs on different inputs."""
    if len(one) != len(other):
        raise RuntimeError(f"{len(one)} steps in one run and {len(other)} in another")
    same = iter([torch.equal(a, b) for a, b in zip(one, other, strict=True)])
    return [each for each in additions if each.kind == "none" or not next(same)]


def _reading(steps: list[Addition], because: list[str]) -> Reading:
    stages: list[int] = []
    previous = None
    for step in steps:
        if step.elements != previous or step.kind == "projection":
            stages.append(0)
        stages[-1] += 1
        previous = step.elements
    kinds = [step.kind for step in steps]
    counts = (kinds.count("identity"), kinds.count("projection"))
    sequence = [f"{step.owner} {step.kind} {step.elements}" for step in steps]
    return Reading(len(steps), stages, *counts, sequence, because)


def _readings(additions: list[Addition]) -> Iterator[Reading]:
    """Yield every accepted reading of a run, the one that counts first."""
    others = rules().other

    def other(one: Addition) -> tuple[str, str] | None:
        for place, start in others:
            if one.place == place and one.text.startswith(start):
                return place, start
        return None

    keys = sorted({key for one in additions if (key := other(one))})
    for choice in product(*[(None, *others[key][0]) for key in keys]):
        kinds = {key: kind for key, kind in zip(keys, choice, strict=True) if kind}
        read = [replace(one, kind=kinds.get(other(one), one.kind)) for one in additions]
        reasons = sorted({others[key][1] for key in kinds})
        yield _reading([one for one in read if one.kind != "none"], reasons)


def expectation(network: Network) -> Expected:
    """Find the truth for one network."""
    model = network.stirred(noise=None)
    sums: tuple[list[Tensor], list[Tensor]] = ([], [])
    first, _ = (
        listened(model, network.example(), lambda *seen, s=each: s.append(seen[-1].clone()))
        for each in sums
    )
    if first.unknown:
        lines = [f"    {where}\n      {text}" for text, where in first.unknown.items()]
        raise LookupError("not classified:\n" + "\n".join(lines))
    reading, *accepted = _readings(_depending(first.additions, *sums))
    return Expected(reading, accepted)


def truth(
    table: Literal["timm", "beyond", "language"],
    only: str = "",
    json: Path = Path("out/coverage-truth.json"),
) -> None:
    """Find the expected steps of every network anew from the packages' sources.

    The data are rewritten only if all networks of the table were found.

    Args:
        table: which networks.
        only: a pattern for package, group and name.
        json: where the expectations are written, with what differs from those that are stored.
    """
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    stored = collection(table).networks
    found, rows, failed = [], [], []
    for network in chosen(stored, only):
        try:
            expected = expectation(network)
        except Exception as error:
            failed.append(f"{network.label}: {type(error).__name__}: {error}")
            continue
        found.append(replace(network, expected=expected))
        reading, same = expected.reading, expected == network.expected
        counts = [str(n) for n in (reading.steps, reading.identity, reading.projection)]
        shown = [str(reading.stages), str(len(expected.accepted)), "yes" if same else "no"]
        rows.append([network.label, *counts, *shown])
        gc.collect()
    columns = [
        "network",
        "steps",
        "identity",
        "projection",
        "stages",
        "other readings",
        "as stored",
    ]
    Table("Expected steps", columns, rows).print()
    write_json(json, {"networks": [asdict(network) for network in found], "failed": failed})
    if failed:
        raise SystemExit("\n".join([*failed, f"{len(failed)} failed"]))
    if len(found) == len(stored):
        print(f"wrote {write_collection(table, found)}")
