"""One process of `operators.py`: one instruction set, one allocator, one number of threads.

    python benchmarks/operators_measure.py --json found.json --parts kernels --shapes S3 --calls 3

Contestants take turns, and the smallest time of several calls counts: of the process with one
thread, which is the figure that repeats on a shared machine; of the wall with more.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from _measure import write_json
from operator_contestants import Runs, Shape, cores, layers

from attnlab.evolution import Involution2d, Window, av, native_status, qk, sc, spanned_av

SHAPES: dict[str, Shape] = {
    "S1": (8, 64, 56, 7),
    "S2": (8, 128, 28, 7),
    "S3": (8, 256, 14, 7),
    "S4": (8, 512, 7, 7),
    "C3": (32, 64, 32, 3),
    "C5": (32, 64, 32, 5),
    "C7": (32, 64, 32, 7),
}
PARTS = ("cores", "layers", "peers", "kernels", "memory")
Contest = Mapping[str, Callable[[], object]]


def smallest_times(contest: Contest, calls: int) -> dict[str, float]:
    """Seconds, each contestant's smallest; one call of each in turn."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    best = dict.fromkeys(contest, float("inf"))
    for run in contest.values():
        run()
    for _ in range(calls):
        for name, run in contest.items():
            start = clock()
            run()
            best[name] = min(best[name], clock() - start)
    return best


def pin_allocator() -> None:
    """Give every block above 64 KiB its own mapping, so that freed memory leaves the resident set.

    To be called before anything else: what was freed on the heap is used again, and stays resident.
    """
    mmap_threshold = -3
    ctypes.CDLL(None).mallopt(mmap_threshold, 64 * 1024)


def peak_memory(run: Callable[[], object]) -> float:
    """MiB by which the resident set grows at most during one call (Linux)."""

    def status(key: str) -> int:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(key):
                return int(line.split()[1])
        return 0

    if not Path("/proc/self/clear_refs").exists():
        return float("nan")
    run()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    run()
    return (status("VmHWM") - before) / 1024


def kernels(shape: Shape, calls: int) -> dict[str, float]:
    """Each primitive, with the allocation of its output, and one reading of its operands."""
    batch, channels, size, kernel = shape
    groups, window = channels // 16, Window.centred(kernel)
    x, y = torch.randn(2, batch, channels, size, size)
    maps = torch.randn(batch, groups, window.taps, size, size)
    out = torch.empty_like(x)
    return smallest_times(
        {
            "floor": lambda: (maps.sum(), out.copy_(x)),
            "av": lambda: av(maps, x, window),
            "qk": lambda: qk(y, x, groups, window),
            "sc": lambda: sc(maps, y, (size, size), window),
        },
        calls,
    )


def parts_of_involution(shape: Shape, calls: int) -> dict[str, float]:
    """Where the time of the layer's forward pass goes. The maps are made and used at once in the
    layer; alone, they are written and read."""
    batch, channels, size, kernel = shape
    layer = Involution2d(channels, kernel).train()
    x, window, groups = torch.randn(batch, channels, size, size), layer.window, layer.groups
    with torch.no_grad():
        reduced = layer.reduce[0](x)
        features = layer.reduce(x)
        maps = layer.span(features).unflatten(1, (groups, window.taps))
        weight, bias = layer.span.weight.flatten(1), layer.span.bias
        return smallest_times(
            {
                "1×1 convolution": lambda: layer.reduce[0](x),
                "norm and ReLU": lambda: layer.reduce[2](layer.reduce[1](reduced)),
                "maps alone": lambda: layer.span(features),
                "aggregation alone": lambda: av(maps, x, window),
                "maps and aggregation": lambda: spanned_av(
                    features, x, weight, bias, groups, window
                ),
                "the layer": lambda: layer(x),
            },
            calls,
        )


def machine_limits() -> dict[str, float]:
    """Bandwidth of reading and copying 256 MiB, and the rate of a large matrix product."""
    block = torch.randn(64 * 2**20)
    target = torch.empty_like(block)
    matrix = torch.randn(1024, 1024)
    times = smallest_times(
        {
            "read": lambda: block.sum(),
            "copy": lambda: target.copy_(block),
            "matmul": lambda: matrix @ matrix,
        },
        3,
    )
    bytes_read = block.numel() * 4
    return {
        "read GB/s": bytes_read / times["read"] / 1e9,
        "copy GB/s (read + write)": 2 * bytes_read / times["copy"] / 1e9,
        "matmul GFLOP/s": 2 * 1024**3 / times["matmul"] / 1e9,
    }


def contests(shape: Shape, parts: list[str]) -> dict[str, dict[str, Runs]]:
    """Title and contestants of each table."""
    found: dict[str, dict[str, Runs]] = {}
    if "cores" in parts:
        found |= {f"{title} core": runs for title, runs in cores(shape).items()}
    if "layers" in parts:
        found["layers"] = layers(shape, "peers" in parts)
    return found


def measure(shapes: list[str], parts: list[str], calls: int) -> dict[str, Any]:
    """Seconds of everything asked for; with "memory", MiB instead."""
    found: dict[str, Any] = {
        "native": str(native_status().variant),
        "threads": torch.get_num_threads(),
        "limits": machine_limits(),
        "shapes": {name: {} for name in shapes},
    }
    if "memory" in parts:
        pin_allocator()
    for name in shapes:
        for title, runs in contests(SHAPES[name], parts).items():
            if "memory" in parts:
                peaks = {each: {"memory": peak_memory(run[1])} for each, run in runs.items()}
                found["shapes"][name][title] = peaks
                continue
            forward = smallest_times({each: run[0] for each, run in runs.items()}, calls)
            both = smallest_times({each: run[1] for each, run in runs.items()}, calls)
            found["shapes"][name][title] = {
                each: {"forward": forward[each], "both": both[each]} for each in runs
            }
        if "kernels" in parts:
            found["shapes"][name]["kernels"] = kernels(SHAPES[name], 3 * calls)
            found["shapes"][name]["parts"] = parts_of_involution(SHAPES[name], 3 * calls)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", nargs="+", default=["S1", "S2", "S3", "S4"], choices=SHAPES)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--json", type=Path, required=True, help="write all numbers here")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    write_json(arguments.json, measure(arguments.shapes, arguments.parts, arguments.calls))


if __name__ == "__main__":
    main()
