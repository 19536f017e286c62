"""What attention costs at inference: folded and not, and hosted by this version and another."""

from __future__ import annotations

import copy
import gc
import importlib
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import scipy.stats
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten
from torch.utils.weak import WeakTensorKeyDictionary

import attnlab
from attnlab.surgery.insertion import attachments
from benchmarks._common import ROOT, Table, interleave, ratio_text, settings, timed, write_json

FOLD = settings("speed")["fold"]
HOSTING = settings("speed")["hosting"]
COPIES: int = HOSTING["copies"]


@dataclass(frozen=True)
class Contestant:
    """One network in the table of `fold`."""

    network: str
    contestant: str
    compiled: bool
    parameters: int
    ratio: float
    """Time relative to the plain network's."""
    interval: tuple[float, float]
    """Of the ratio, 95 %."""
    milliseconds: float
    peak_megabytes: float
    """Beyond weights and input."""

    @property
    def goal_met(self) -> str:
        """Folded as fast as plain; fused ResNets faster than that."""
        if self.contestant == "+asr:se folded":
            return "yes" if abs(self.ratio - 1) <= 0.02 else "no"
        fused = self.contestant.endswith("fused") and self.network.startswith("resnet")
        if fused and not self.compiled:
            return "yes" if self.ratio <= 0.85 else "no"
        return ""

    @property
    def cells(self) -> list[str]:
        """As a row of the table."""
        time, memory = f"{self.milliseconds:.1f}", f"{self.peak_megabytes:.1f}"
        ratio = ratio_text(self.ratio, *self.interval, digits=3)
        return [self.contestant, ratio, time, f"{self.parameters:,}", memory, self.goal_met]


class PeakMemory(TorchDispatchMode):
    """The largest sum of sizes of live tensors that operations made while entered."""

    def __init__(self) -> None:
        super().__init__()
        self.live = WeakTensorKeyDictionary()
        self.peak = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        del types
        output = function(*args, **(kwargs or {}))
        for leaf in tree_flatten(output)[0]:
            if isinstance(leaf, Tensor) and not leaf._is_view():
                self.live[leaf] = leaf.untyped_storage().nbytes()
        self.peak = max(self.peak, sum(self.live.values()))
        return output


def _peak_megabytes(network: nn.Module, images: Tensor) -> float:
    with torch.no_grad(), PeakMemory() as memory:
        network(images)
    return memory.peak / 1e6


def _stirred(network: nn.Module) -> nn.Module:
    """Move gates from their start and branches from 0, so that nothing is trivially equal."""
    with torch.no_grad():
        for _, attachment in attachments(network):
            for parameter in attachment.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        for name, parameter in network.named_parameters():
            if parameter.dim() == 1 and "attnlab" not in name:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return network.eval()


def _contestants(plain: nn.Module, images: Tensor) -> Iterator[tuple[str, nn.Module]]:
    """Yield the rows of the table, one network at a time."""
    yield "plain", plain
    for gate in FOLD["gates"]:
        yield f"+{gate}", _stirred(attnlab.insert(plain, gate, example=images[:1])[0])
    trained = _stirred(attnlab.insert(plain, "asr:se", example=images[:1])[0])
    yield "+asr:se as trained", trained
    yield "+asr:se folded", attnlab.fold(trained, example=images[:1])[0]
    yield "+asr:se folded, fused", attnlab.fold(trained, fuse=True, example=images[:1])[0]


def _runner(network: nn.Module, images: Tensor, compiled: bool) -> Callable[[], object]:
    if compiled:
        torch._dynamo.reset()
        network = torch.compile(network)  # type: ignore[assignment]

    def run() -> Tensor:
        with torch.inference_mode():
            return network(images)

    return run


def _folded(label: str, compiled: bool, seconds: float, batch: int | None) -> list[Contestant]:
    """Time all contestants on one network against the plain one."""
    about = FOLD["networks"][label]
    torch.manual_seed(0)
    plain = _stirred(attnlab.create(about["network"]))
    images = torch.randn(batch or about["batch"], 3, about["size"], about["size"])
    run_plain = _runner(plain, images, compiled)
    rows = []
    for name, network in _contestants(plain, images):
        found = attnlab.latency(run_plain, _runner(network, images, compiled), (), seconds=seconds)
        parameters = sum(p.numel() for p in network.parameters())
        interval, peak = (found.low, found.high), _peak_megabytes(network, images)
        after = 1e3 * found.after
        rows.append(
            Contestant(label, name, compiled, parameters, found.ratio, interval, after, peak)
        )
        del network
        gc.collect()
    return rows


def fold(
    networks: tuple[str, ...] = tuple(FOLD["networks"]),
    seconds: float = 20.0,
    batch: int | None = None,
    eager: bool = True,
    compiled: bool = True,
    json: Path = Path("out/speed-fold.json"),
) -> None:
    """Time networks with gates, folded and fused, against the plain one; an hour on one core.

    The goal is folded / plain = 1.00 ± 0.02 and, for ResNets, folded and fused ≤ 0.85. Peak memory
    is the largest sum of live tensors that one eager forward run allocates. `attnlab speed` has
    all of ASR's Table 1.

    Args:
        networks: which of resnet164@32, resnet164@96, resnet50, vit_small.
        seconds: how long each pair is timed, interleaved, at most.
        batch: images per run, instead of each network's own number.
        eager: whether to measure eager mode.
        compiled: whether to measure torch.compile.
        json: where the numbers are written.
    """
    rows: list[Contestant] = []
    columns = ("network", "time / plain", "ms", "parameters", "peak MB", "goal")
    for label in networks:
        for mode in [m for m, wanted in ((False, eager), (True, compiled)) if wanted]:
            found = _folded(label, mode, seconds, batch)
            title = f"{label}, {'compiled' if mode else 'eager'}"
            Table(title, columns, [row.cells for row in found]).print()
            rows += found
            write_json(json, {"rows": [asdict(row) for row in rows]})


@dataclass(frozen=True)
class HostingCost:
    """One network with gates, by both versions of attnlab."""

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

    @property
    def cells(self) -> list[str]:
        """As a row of the table."""
        times = [f"{self.before_ms:.2f}", f"{self.after_ms:.2f}"]
        counts = f"{self.instructions_before} → {self.instructions_after}"
        ratio = ratio_text(self.ratio, *self.interval, digits=3)
        return [self.case, str(self.gates), *times, ratio, counts]


def _made_by(source: Path, cases: list[dict[str, Any]]) -> list[tuple[nn.Module, int]]:
    """Build the cases' networks by the attnlab in `source`, with the number of their gates."""
    for name in [name for name in sys.modules if name.split(".")[0] == "attnlab"]:
        del sys.modules[name]
    sys.path.insert(0, str(source))
    package = importlib.import_module("attnlab")
    assert package.__file__ is not None
    assert Path(package.__file__).is_relative_to(source), package.__file__
    made = []
    for case in cases:
        torch.manual_seed(0)
        gated, receipt = package.insert(package.create(case["network"]).eval(), case["gate"])
        made.append((gated, len(receipt.sites)))
    sys.path.remove(str(source))
    return made


def _compared(
    before: nn.Module, after: nn.Module, images: Tensor, seconds: float
) -> tuple[float, float, float, tuple[float, float]]:
    """Time copies of both, interleaved. One copy of the same network is faster than another by
    where its memory lies, by about as much as hosting could cost: hence several."""
    copies = {
        f"{name} {number}": timed(partial(copy.deepcopy(each), images), time.thread_time)
        for name, each in (("before", before), ("after", after))
        for number in range(COPIES)
    }
    times = interleave(copies, seconds=seconds, warm_up=0)
    logarithms = [math.log(1e3 * statistics.median(each)) for each in times.values()]
    was, now = logarithms[:COPIES], logarithms[COPIES:]
    difference = statistics.mean(now) - statistics.mean(was)
    error = math.sqrt((statistics.variance(now) + statistics.variance(was)) / COPIES)
    reach = error * float(scipy.stats.t.ppf(0.975, 2 * COPIES - 2))
    interval = (math.exp(difference - reach), math.exp(difference + reach))
    means = (math.exp(statistics.mean(each)) for each in (was, now))
    return (*means, math.exp(difference), interval)


def instructions(run: Callable[[], object]) -> int:
    """Count the Python instructions that `run` executes."""
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


def hosting(
    before: Path,
    only: str = "",
    seconds: float = 30.0,
    json: Path = Path("out/speed-hosting.json"),
) -> None:
    """Time networks with gates in this checkout against another one, in one process.

    Both packages are loaded, one after the other. The executed Python instructions per forward are
    counted as well: they do not depend on a busy machine.

    Args:
        before: the folder `src` of the other checkout.
        only: the networks whose name contains this.
        seconds: per case.
        json: where the numbers are written.
    """
    torch.set_num_threads(1)
    cases = [case for case in HOSTING["cases"] if only in case["network"]]
    both = zip(_made_by(before.resolve(), cases), _made_by(ROOT / "src", cases), strict=True)
    gc.freeze()
    costs = []
    with torch.inference_mode():
        for case, ((old, _), (new, gates)) in zip(cases, both, strict=True):
            images = torch.randn(case["batch"], 3, case["size"], case["size"])
            assert torch.equal(old(images), new(images))
            found = _compared(old, new, images, seconds)
            counts = [instructions(partial(n, images)) for n in (old, new)]
            name = f"{case['network']} + {case['gate']}, {case['batch']} × {case['size']}²"
            costs.append(HostingCost(name, gates, *found, *counts))
    columns = ["case", "gates", "before ms", "after ms", "after / before", "instructions"]
    Table("Networks with gates, before and after", columns, [c.cells for c in costs]).print()
    write_json(json, {"hosting": [asdict(cost) for cost in costs]})
