"""What hosting costs: networks with gates, this checkout against another one, in one process.

    python benchmarks/hosting.py --before ../attnlab-before/src

Both packages are loaded, one after the other, and their networks run in turns. Beside the times,
the executed Python instructions per forward are counted: those do not depend on a busy machine.
"""

from __future__ import annotations

import argparse
import copy
import gc
import importlib
import math
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import scipy.stats
import torch
from _measure import print_table, write_json
from torch import Tensor, nn

COPIES = 4
CASES = (
    ("resnet20", "se", 1, 32),
    ("resnet20", "step", 1, 32),
    ("resnet164", "se", 8, 32),
    ("timm:resnet50", "se", 1, 128),
    ("timm:resnet50", "step", 1, 128),
    ("timm:vit_tiny_patch16_224", "eca", 1, 224),
)


@dataclass(frozen=True)
class Cost:
    """Of one network with gates."""

    case: str
    gates: int
    before_ms: float
    """Geometric mean over copies of the median turn, in CPU time of the thread."""
    after_ms: float
    ratio: float
    interval: tuple[float, float]
    """Of the ratio, 95 %, by the spread among copies."""
    instructions_before: int
    """Python instructions in one forward."""
    instructions_after: int


def networks(source: Path) -> list[tuple[nn.Module, int]]:
    """The cases' networks by the attnlab in `source`, and the number of their gates."""
    for name in [name for name in sys.modules if name.split(".")[0] == "attnlab"]:
        del sys.modules[name]
    sys.path.insert(0, str(source))
    attnlab = importlib.import_module("attnlab")
    assert Path(attnlab.__file__).is_relative_to(source), attnlab.__file__
    made = []
    for network, gate, _, _ in CASES:
        torch.manual_seed(0)
        gated, receipt = attnlab.insert(attnlab.create(network).eval(), gate)
        made.append((gated, len(receipt.sites)))
    sys.path.remove(str(source))
    return made


def compare(
    before: nn.Module, after: nn.Module, images: Tensor, seconds: float
) -> dict[str, float | tuple[float, float]]:
    """Copies of both in turns, for `seconds`. One copy of the same network is faster than another
    by where its memory lies, by about as much as hosting could cost: hence several."""
    copies = [copy.deepcopy(each) for each in (before, after) for _ in range(COPIES)]
    times: list[list[int]] = [[] for _ in copies]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for which in random.sample(range(len(copies)), len(copies)):
            began = time.thread_time_ns()
            copies[which](images)
            times[which].append(time.thread_time_ns() - began)
    logarithms = [math.log(statistics.median(each) / 1e6) for each in times]
    was, now = logarithms[:COPIES], logarithms[COPIES:]
    difference = statistics.mean(now) - statistics.mean(was)
    error = math.sqrt((statistics.variance(now) + statistics.variance(was)) / COPIES)
    reach = error * float(scipy.stats.t.ppf(0.975, 2 * COPIES - 2))
    return {
        "before_ms": math.exp(statistics.mean(was)),
        "after_ms": math.exp(statistics.mean(now)),
        "ratio": math.exp(difference),
        "interval": (math.exp(difference - reach), math.exp(difference + reach)),
    }


def instructions(run: Callable[[], object]) -> int:
    """Python instructions that `run` executes."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        del argument
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    run()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(None)
    return count


def main() -> None:
    """Measure, print, and write where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True, help="src of the other checkout")
    parser.add_argument("--seconds", type=float, default=30, help="per case")
    parser.add_argument("--json", type=Path, help="also write the results here")
    options = parser.parse_args()
    torch.set_num_threads(1)
    here = Path(__file__).resolve().parent.parent / "src"
    both = zip(networks(options.before.resolve()), networks(here), strict=True)
    gc.freeze()
    costs = []
    with torch.inference_mode():
        for (name, gate, batch, size), ((before, _), (after, gates)) in zip(
            CASES, both, strict=True
        ):
            images = torch.randn(batch, 3, size, size)
            assert torch.equal(before(images), after(images))
            timed = compare(before, after, images, options.seconds)
            counts = [instructions(lambda n=n, x=images: n(x)) for n in (before, after)]
            case = f"{name} + {gate}, {batch} × {size}²"
            costs.append(Cost(case, gates, **timed, instructions_before=counts[0],
                              instructions_after=counts[1]))  # fmt: skip
    print_table(
        "Networks with gates, before and after",
        ["case", "gates", "before ms", "after ms", "after / before", "instructions"],
        [
            [c.case, str(c.gates), f"{c.before_ms:.2f}", f"{c.after_ms:.2f}",
             f"{c.ratio:.3f} [{c.interval[0]:.3f}, {c.interval[1]:.3f}]",
             f"{c.instructions_before} → {c.instructions_after}"]
            for c in costs
        ],
    )  # fmt: skip
    if options.json:
        write_json(options.json, {"hosting": [asdict(cost) for cost in costs]})


if __name__ == "__main__":
    main()
