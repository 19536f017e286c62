"""What watching a network costs, against the plain forward and against other libraries.

    python benchmarks/capture.py                  ResNet-56 and ResNet-110, batch 128, one thread
    python benchmarks/capture.py --quick          a small case, to see that it runs
    python benchmarks/capture.py --parts tns memory
    python benchmarks/capture.py --instructions avx512 avx2 --json capture.json \\
        --write-docs docs/benchmarks.md           the section of the page, some 13 minutes

Two numbers per case: the share of the time spent inside the measuring functions, and the ratio of a
whole watched forward to a plain one, interleaved in one process, median of the pairs. The share is
the steadier one on a busy machine. "reading" is the floor: both tensors of a step are summed, and
nothing is computed of them. torchlens, nnsight and captum are measured when installed; all three
keep the tensors they see.

Every instruction set of `--instructions` is a process of its own: torch, oneDNN and the native
kernels are held to it. The compiled reduction is left to choose its own. Only the first measures
more than the forward part.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import importlib.metadata
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from _measure import write_json
from capture_tables import write_section
from torch import Tensor, nn

import attnlab
from attnlab.instruments.stiffness import Captured, tns
from attnlab.instruments.stiffness.capture import capture
from attnlab.instruments.stiffness.measure import stiffness
from attnlab.instruments.stiffness.native import use_native

REDUCTIONS = ("reading", "eager", "compiled", "native")
INSTRUCTIONS = {
    "avx512": {"ATEN_CPU_CAPABILITY": "avx512"},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
}
Found = dict[str, Any]
PARTS = ("forward", "tns", "memory", "others")


@torch.compile(dynamic=False)
def _sums(x: Tensor, f: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    axes = tuple(range(1, x.ndim))
    change = torch.maximum(f, -x)
    return (x * x).sum(axes), (f * f).sum(axes), (change * change).sum(axes)


def _compiled_norms(x: Tensor, f: Tensor, inputs: int, activation: object) -> tuple[Tensor, ...]:
    del inputs, activation
    return tuple(total.sqrt() for total in _sums(x, f))


def _read(x: Tensor, f: Tensor, inputs: int, activation: object) -> tuple[Tensor, ...]:
    """No norms: both tensors in the order of memory, once."""
    del activation
    either = x.as_strided((x.numel(),), (1,)).sum() + f.as_strided((f.numel(),), (1,)).sum()
    return (either.expand(inputs),) * 3


@contextmanager
def reduction(name: str) -> Iterator[None]:
    """Use one of `REDUCTIONS` inside the block."""
    module = importlib.import_module("attnlab.instruments.stiffness.capture")
    original = module.step_norms
    if name in ("compiled", "reading"):
        module.step_norms = _compiled_norms if name == "compiled" else _read
    try:
        with use_native(name == "native"):
            yield
    finally:
        module.step_norms = original


@contextmanager
def timed(clock: list[float]) -> Iterator[None]:
    """Add the time spent measuring to clock[0]."""
    original = Captured.step_seen

    def step_seen(self: Captured, *args: object) -> None:
        start = time.perf_counter()
        original(self, *args)
        clock[0] += time.perf_counter() - start

    Captured.step_seen = step_seen
    try:
        yield
    finally:
        Captured.step_seen = original


def paired(
    plain: Callable[[], object], watched: Callable[[], object], clock: list[float], repeats: int
) -> tuple[float, float]:
    """Median ratio of watched to plain, and median share of the clock in watched."""
    ratios, shares = [], []
    for number in range(repeats + 2):
        start = time.perf_counter()
        plain()
        middle = time.perf_counter()
        clock[0] = 0.0
        watched()
        end = time.perf_counter()
        if number >= 2:  # the first ones warm up
            ratios.append((end - middle) / (middle - start))
            shares.append(clock[0] / (end - middle))
    return statistics.median(ratios), statistics.median(shares)


def forward_part(networks: list[str], batch: int, repeats: int) -> list[Found]:
    found = []
    print(f"{'network':12} {'layout':14} {'reduction':10} {'inside':>8} {'ratio':>7}")
    for name in networks:
        for layout in (torch.contiguous_format, torch.channels_last):
            net = attnlab.create(name).eval().to(memory_format=layout)
            images = torch.randn(batch, 3, 32, 32).to(memory_format=layout)
            twin = copy.deepcopy(net)
            for way in REDUCTIONS:
                clock = [0.0]
                with torch.no_grad(), reduction(way), timed(clock), capture(twin):
                    ratio, share = paired(
                        partial(net, images), partial(twin, images), clock, repeats
                    )
                text = str(layout).removeprefix("torch.")
                print(f"{name:12} {text:14} {way:10} {100 * share:7.1f}% {ratio:7.3f}", flush=True)
                found.append(
                    {
                        "network": name,
                        "layout": text,
                        "reduction": way,
                        "share": share,
                        "ratio": ratio,
                    }
                )
    return found


def _torchlens(net: nn.Module, images: Tensor) -> Callable[[], object]:
    torchlens = importlib.import_module("torchlens")
    return lambda: torchlens.trace(net, images)


def _nnsight(net: nn.Module, images: Tensor) -> Callable[[], object]:
    wrapped = importlib.import_module("nnsight").NNsight(net)
    blocks = [
        name for name, module in net.named_modules() if type(module).__name__.endswith("Block")
    ]

    def run() -> None:
        with wrapped.trace(images):
            for name in blocks:
                wrapped.get(name).output.save()

    return run


def _captum(net: nn.Module, images: Tensor) -> Callable[[], object]:
    attribution = importlib.import_module("captum.attr").LayerActivation
    blocks = [module for module in net.modules() if type(module).__name__.endswith("Block")]
    return lambda: attribution(net, blocks).attribute(images)


# torchlens is the last: it wraps torch's functions for the rest of the process.
OTHERS = {"captum": _captum, "nnsight": _nnsight, "torchlens": _torchlens}


def others_part(networks: list[str], batch: int, repeats: int) -> list[Found]:
    """Ratio of a forward watched by each library to a plain one, or why it was not measured."""
    found = []
    for library, build in OTHERS.items():
        for name in networks:
            net = attnlab.create(name).eval()
            images = torch.randn(batch, 3, 32, 32)
            one: Found = {"library": library, "network": name, "version": None, "ratio": None}
            try:
                one["version"] = importlib.metadata.version(library)
                watched = build(net, images)
                with torch.no_grad():
                    one["ratio"], _ = paired(
                        partial(net, images), watched, [0.0], max(1, repeats // 3)
                    )
                print(f"{name:12} {library:10} ratio {one['ratio']:7.3f}", flush=True)
            except Exception as error:  # whatever they do, the others are still measured
                one["reason"] = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
                print(f"{name:12} {library:10} not measured: {one['reason']}", flush=True)
            found.append(one)
    return found


def tns_part() -> float:
    values, stages = torch.rand(10_000, 54), torch.arange(54) // 18
    seconds = []
    for _ in range(30):
        start = time.perf_counter()
        tns(values, stages)
        seconds.append(time.perf_counter() - start)
    milliseconds = 1e3 * statistics.median(seconds)
    print(f"exact TNS, 10,000 inputs × 54 steps: {milliseconds:.1f} ms")
    return milliseconds


def memory_part(inputs: tuple[int, ...]) -> dict[int, float]:
    net = attnlab.create("resnet20").eval()
    found = {}
    for number in inputs:
        batches = (torch.randn(100, 3, 32, 32) for _ in range(number // 100))
        result = stiffness(net, batches, progress=False)
        found[number] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{result.inputs:7d} inputs, peak memory {found[number]:.0f} MB", flush=True)
    return found


def measure(parts: list[str], quick: bool, repeats: int) -> Found:
    """Everything asked for, in this process."""
    torch.set_num_threads(1)
    networks, batch = ["resnet56", "resnet110"], 128
    inputs: tuple[int, ...] = (1_000, 10_000, 50_000)
    if quick:
        networks, batch, repeats, inputs = ["resnet20"], 8, 3, (200, 600)
    found: Found = {"instructions": torch.backends.cpu.get_cpu_capability()}
    if "forward" in parts:
        found["forward"] = forward_part(networks, batch, repeats)
    if "tns" in parts:
        found["tns_ms"] = tns_part()
    if "memory" in parts:
        found["memory_mb"] = memory_part(inputs)
    if "others" in parts:
        found["others"] = others_part(networks, batch, repeats)
    return found


def held_to(instructions: str, parts: list[str], arguments: argparse.Namespace) -> Found:
    """What another process measures that is held to one instruction set."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "found.json"
        command = [sys.executable, __file__, "--json", str(file), "--parts", *parts]
        command += ["--repeats", str(arguments.repeats), *(["--quick"] * arguments.quick)]
        environment = {**os.environ, **INSTRUCTIONS[instructions]}
        subprocess.run(command, env=environment, check=True)
        return dict(json.loads(file.read_text())["found"][0])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="resnet20, batch 8, 3 repeats")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--instructions", nargs="+", choices=INSTRUCTIONS, default=[])
    parser.add_argument("--json", type=Path, help="write all numbers here")
    parser.add_argument("--write-docs", type=Path, help="renew the section of this page")
    arguments = parser.parse_args()
    if arguments.quick and arguments.write_docs:
        parser.error("--quick measures too little for a page")
    if arguments.instructions:
        first, *more = arguments.instructions
        found = [held_to(first, arguments.parts, arguments)]
        found += [held_to(name, ["forward"], arguments) for name in more]
    else:
        found = [measure(arguments.parts, arguments.quick, arguments.repeats)]
    if arguments.json:
        write_json(arguments.json, {"found": found})
    if arguments.write_docs:
        write_section(arguments.write_docs, found)


if __name__ == "__main__":
    main()
