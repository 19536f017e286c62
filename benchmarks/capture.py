"""What watching a network costs, against the plain forward and against other libraries.

    python benchmarks/capture.py                  ResNet-56 and ResNet-110, batch 128, one thread
    python benchmarks/capture.py --quick          a small case, to see that it runs
    python benchmarks/capture.py --parts tns memory

Two numbers per case: the share of the time spent inside the measuring functions, and the ratio of a
whole watched forward to a plain one, interleaved in one process, median of the pairs. The share is
the steadier one on a busy machine. torchlens, nnsight and captum are measured when installed; all
three keep the tensors they see.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import importlib.util
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

import attnlab
from attnlab.trajectory import Captured, capture, stiffness, tns
from attnlab.trajectory.native import use_native

REDUCTIONS = ("eager", "compiled", "native")
PARTS = ("forward", "others", "tns", "memory")


@torch.compile(dynamic=False)
def _sums(x: Tensor, f: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    axes = tuple(range(1, x.ndim))
    change = torch.maximum(f, -x)
    return (x * x).sum(axes), (f * f).sum(axes), (change * change).sum(axes)


def _compiled_norms(x: Tensor, f: Tensor, inputs: int, activation: object) -> tuple[Tensor, ...]:
    del inputs, activation
    return tuple(total.sqrt() for total in _sums(x, f))


@contextmanager
def reduction(name: str) -> Iterator[None]:
    """Use the eager, the compiled or the native reduction inside the block."""
    module = importlib.import_module("attnlab.trajectory.capture")
    original = module.step_norms
    if name == "compiled":
        module.step_norms = _compiled_norms
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


def forward_part(networks: list[str], batch: int, repeats: int) -> None:
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


OTHERS = {"torchlens": _torchlens, "nnsight": _nnsight, "captum": _captum}


def others_part(networks: list[str], batch: int, repeats: int) -> None:
    for library, build in OTHERS.items():
        if importlib.util.find_spec(library) is None:
            print(f"{library} is not installed")
            continue
        for name in networks:
            net = attnlab.create(name).eval()
            images = torch.randn(batch, 3, 32, 32)
            watched = build(net, images)
            with torch.no_grad():
                ratio, _ = paired(partial(net, images), watched, [0.0], max(1, repeats // 3))
            print(f"{name:12} {library:10} ratio {ratio:7.3f}", flush=True)


def tns_part() -> None:
    values, stages = torch.rand(10_000, 54), torch.arange(54) // 18
    seconds = []
    for _ in range(30):
        start = time.perf_counter()
        tns(values, stages)
        seconds.append(time.perf_counter() - start)
    print(f"exact TNS, 10,000 inputs × 54 steps: {1e3 * statistics.median(seconds):.1f} ms")


def memory_part(inputs: tuple[int, ...]) -> None:
    net = attnlab.create("resnet20").eval()
    for number in inputs:
        batches = (torch.randn(100, 3, 32, 32) for _ in range(number // 100))
        result = stiffness(net, batches)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{result.inputs:7d} inputs, peak memory {peak:.0f} MB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="resnet20, batch 8, 3 repeats")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    networks, batch, repeats = ["resnet56", "resnet110"], 128, arguments.repeats
    inputs = (1_000, 10_000, 50_000)
    if arguments.quick:
        networks, batch, repeats, inputs = ["resnet20"], 8, 3, (200, 600)
    if "forward" in arguments.parts:
        forward_part(networks, batch, repeats)
    if "others" in arguments.parts:
        others_part(networks, batch, repeats)
    if "tns" in arguments.parts:
        tns_part()
    if "memory" in arguments.parts:
        memory_part(inputs)


if __name__ == "__main__":
    main()
