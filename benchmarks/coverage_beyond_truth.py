"""The expected residual steps of small networks of packages other than timm.

As `coverage_truth.py` for timm, the truth does not come from a data-flow graph: it comes from the
packages' sources, read by hand. `coverage_beyond_adds.py` says of every addition whether it is a
residual step. This program runs each network once and asks of every addition of two equal-shaped
tensors which expression of which source line made it. One that nobody has classified is an error.

    python benchmarks/coverage_beyond_truth.py             # all, rewrites the .json beside it
    python benchmarks/coverage_beyond_truth.py 'detection' # only those, prints, writes nothing
"""

from __future__ import annotations

import ast
import gc
import importlib.metadata
import json
import linecache
import os
import re
import sys
import warnings
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

sys.path.insert(0, str(Path(__file__).parent))
from coverage_beyond_adds import NOT_STEPS, OTHER_READINGS, STEPS
from coverage_beyond_networks import BATCH, Network, built, networks
from coverage_truth import passes, plan, readings

HERE = Path(__file__).parent
TORCH = os.path.dirname(torch.__file__) + os.sep
ADDITIONS = frozenset(
    (torch.add, Tensor.add, Tensor.add_, Tensor.__add__, Tensor.__radd__, Tensor.__iadd__)
)


class Listener(TorchFunctionMode):
    """Collects the equal-shaped additions of one forward pass, in order of execution."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.sums: list[Tensor] = []
        """The result of each step's addition."""
        self.names = {id(module): name for name, module in model.named_modules()}
        self.events: list[dict[str, Any]] = []
        self.unknown: dict[str, str] = {}

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if function in ADDITIONS and len(args) == 2 and all(isinstance(a, Tensor) for a in args):
            a, b = args
            if a.shape == b.shape and a.is_floating_point():
                return self._heard(_caller(sys._getframe(1)), function(*args, **(kwargs or {})))
        return function(*args, **(kwargs or {}))

    def _heard(self, frame: FrameType, total: Tensor) -> Tensor:
        place, text = _place(frame), _expression(frame)
        kind = self._kind(place, text, frame)
        if kind != "none":
            self.sums.append(total.clone())
        event = {"place": place, "text": text, "owner": self._owner(frame), "kind": kind}
        self.events.append({**event, "elements": total.numel() // BATCH})
        return total

    def _kind(self, place: str, text: str, frame: FrameType) -> str:
        for start, condition in STEPS.get(place, []):
            if text.startswith(start):
                values = {"passes": passes, **frame.f_locals}
                return "identity" if eval(condition, values) else "projection"
        if not any(text.startswith(start) for start, _ in NOT_STEPS.get(place, [])):
            self.unknown[f"{place}: {text}"] = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        return "none"

    def _owner(self, frame: FrameType | None) -> str:
        """The module that was called last: the nearest `nn.Module.__call__` on the stack."""
        while frame is not None:
            if frame.f_code.co_name == "_call_impl":
                module = frame.f_locals["self"]
                if id(module) in self.names:
                    return self.names[id(module)]
            frame = frame.f_back
        return "?"


def _caller(frame: FrameType) -> FrameType:
    """The source that made the addition: not torch itself, but for its own layers."""
    while True:
        path = frame.f_code.co_filename
        layer = path.startswith(os.path.join(TORCH, "nn", "modules"))
        if path != __file__ and (layer or not path.startswith(TORCH)):
            return frame
        assert frame.f_back is not None
        frame = frame.f_back


def _place(frame: FrameType) -> str:
    name = f"{frame.f_globals['__name__']}.{frame.f_code.co_qualname}".removesuffix(".forward")
    return re.sub(r"^transformers\.models\.\w+\.modeling_", "transformers.", name)


def _expression(frame: FrameType) -> str:
    """The expression or statement that is being executed, as `ast.unparse` prints it."""
    place = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    line, last_line, column, last_column = place
    assert line is not None
    assert last_line is not None
    assert column is not None
    assert last_column is not None
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


def call(model: nn.Module, example: Any) -> Any:
    if isinstance(example, dict):
        return model(**example)
    return model(*example) if isinstance(example, tuple) else model(example)


def listened(model: nn.Module, example: Any) -> Listener:
    listener = Listener(model)
    with torch.no_grad(), listener:
        call(model, example)
    return listener


def _depending(one: Listener, other: Listener) -> list[dict[str, Any]]:
    """The events of the first of two runs on different inputs, without the steps that did not
    notice the difference."""
    if len(one.sums) != len(other.sums):
        raise RuntimeError(f"{len(one.sums)} steps in one run and {len(other.sums)} in another")
    same = iter([torch.equal(a, b) for a, b in zip(one.sums, other.sums, strict=True)])
    return [event for event in one.events if event["kind"] == "none" or not next(same)]


def expect(network: Network) -> dict[str, Any]:
    """The truth for one network."""
    model = built(network)
    listener = listened(model, network.example())
    if listener.unknown:
        raise LookupError(
            "not classified:\n"
            + "\n".join(f"    {where}\n      {text}" for text, where in listener.unknown.items())
        )
    again = listened(model, network.example())
    (_, first), *others = readings(_depending(listener, again), OTHER_READINGS)
    accepted = [{**plan(steps), "because": reasons} for reasons, steps in others]
    described = {"package": network.package, "group": network.group, "network": network.name}
    return {**described, **plan(first), "accepted": accepted}


def version(package: str) -> str:
    distribution = {"open_clip": "open_clip_torch", "vit_pytorch": "vit-pytorch"}
    return importlib.metadata.version(distribution.get(package, package))


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    pattern = sys.argv[1] if len(sys.argv) > 1 else None
    truth, failed = [], []
    for network in networks():
        name = f"{network.package} {network.group} {network.name}"
        if pattern and not re.search(pattern, name):
            continue
        try:
            row = expect(network)
        except Exception as error:
            failed.append(name)
            print("FAILED", f"{name}: {type(error).__name__}: {error}", flush=True)
            continue
        truth.append(row)
        print(
            f"{name:70} {row['steps']:4} i{row['identity']} p{row['projection']} {row['stages']} "
            f"+{len(row['accepted'])}",
            flush=True,
        )
        gc.collect()
    if failed:
        sys.exit(f"{len(failed)} failed")
    if not pattern:
        versions = {p: version(p) for p in dict.fromkeys(row["package"] for row in truth)}
        lines = ",\n".join(json.dumps(row) for row in truth)
        (HERE / "coverage_beyond_truth.json").write_text(
            f'{{"packages": {json.dumps(versions)}, "networks": [\n{lines}\n]}}\n'
        )


if __name__ == "__main__":
    main()
