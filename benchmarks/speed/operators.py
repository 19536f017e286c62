"""The feature operators against what people use: time, memory, and the distance to the machine."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import torch

from attnlab.evolution import Involution2d, Window, av, native_status, qk, sc, spanned_av
from benchmarks._common import (
    child,
    interleave,
    machine,
    read_json,
    renew_section,
    settings,
    timed,
    write_json,
)
from benchmarks.speed.contestants import Runs, Shape, cores, layers
from benchmarks.speed.operator_tables import HEADING, section, tables

SETTINGS = settings("speed")["operators"]
SHAPES: dict[str, Shape] = {name: tuple(shape) for name, shape in SETTINGS["shapes"].items()}
Part = Literal["cores", "layers", "peers", "kernels", "memory"]
Found = dict[str, Any]


def _smallest(contest: Mapping[str, Callable[[], object]], calls: int) -> dict[str, float]:
    """Return each contestant's smallest time: of the process with one thread, which is the figure
    that repeats on a shared machine; of the wall with more."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    times = interleave({name: timed(run, clock) for name, run in contest.items()}, calls)
    return {name: min(each) for name, each in times.items()}


def _pin_allocator() -> None:
    """Give every block above 64 KiB its own mapping, so that freed memory leaves the resident set.

    To be called before anything else: what was freed on the heap is used again, and stays resident.
    """
    mmap_threshold = -3
    ctypes.CDLL(None).mallopt(mmap_threshold, 64 * 1024)


def _peak_memory(run: Callable[[], object]) -> float:
    """Return the MiB by which the resident set grows at most during one call (Linux)."""

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


def _kernels(shape: Shape, calls: int) -> dict[str, float]:
    """Time each primitive, with the allocation of its output, and one reading of its operands."""
    batch, channels, size, kernel = shape
    groups, window = channels // 16, Window.centred(kernel)
    x, y = torch.randn(2, batch, channels, size, size)
    maps = torch.randn(batch, groups, window.taps, size, size)
    out = torch.empty_like(x)
    contest = {
        "floor": lambda: (maps.sum(), out.copy_(x)),
        "av": lambda: av(maps, x, window),
        "qk": lambda: qk(y, x, groups, window),
        "sc": lambda: sc(maps, y, (size, size), window),
    }
    return _smallest(contest, calls)


def _parts_of_involution(shape: Shape, calls: int) -> dict[str, float]:
    """Time the parts of the layer's forward pass. The maps are made and used at once in the layer;
    alone, they are written and read."""
    batch, channels, size, kernel = shape
    layer = Involution2d(channels, kernel).train()
    x, window, groups = torch.randn(batch, channels, size, size), layer.window, layer.groups
    with torch.no_grad():
        reduced = layer.reduce[0](x)
        features = layer.reduce(x)
        maps = layer.span(features).unflatten(1, (groups, window.taps))
        weight, bias = layer.span.weight.flatten(1), layer.span.bias
        contest = {
            "1×1 convolution": lambda: layer.reduce[0](x),
            "norm and ReLU": lambda: layer.reduce[2](layer.reduce[1](reduced)),
            "maps alone": lambda: layer.span(features),
            "aggregation alone": lambda: av(maps, x, window),
            "maps and aggregation": lambda: spanned_av(features, x, weight, bias, groups, window),
            "the layer": lambda: layer(x),
        }
        return _smallest(contest, calls)


def _machine_limits() -> dict[str, float]:
    """Measure the bandwidth of reading and copying 256 MiB, and the rate of a matrix product."""
    block = torch.randn(64 * 2**20)
    target = torch.empty_like(block)
    matrix = torch.randn(1024, 1024)
    contest = {
        "read": lambda: block.sum(),
        "copy": lambda: target.copy_(block),
        "matmul": lambda: matrix @ matrix,
    }
    times, size = _smallest(contest, 3), block.numel() * 4
    return {
        "read GB/s": size / times["read"] / 1e9,
        "copy GB/s (read + write)": 2 * size / times["copy"] / 1e9,
        "matmul GFLOP/s": 2 * 1024**3 / times["matmul"] / 1e9,
    }


def _contests(shape: Shape, parts: tuple[Part, ...]) -> dict[str, dict[str, Runs]]:
    """Return title and contestants of each table."""
    found: dict[str, dict[str, Runs]] = {}
    if "cores" in parts:
        found |= {f"{title} core": runs for title, runs in cores(shape).items()}
    if "layers" in parts:
        found["layers"] = layers(shape, "peers" in parts)
    return found


def operators_part(
    parts: tuple[Part, ...] = ("cores", "layers", "peers", "kernels"),
    shapes: tuple[str, ...] = ("S1", "S2", "S3", "S4"),
    calls: int = 5,
    json: Path = Path("out/speed-operators-part.json"),
) -> None:
    """Measure in this process: one instruction set, one allocator, one number of threads.

    Args:
        parts: what to measure; with "memory", MiB instead of seconds.
        shapes: which shapes; C3, C5 and C7 are those of other papers.
        calls: of which the smallest time counts.
        json: where the numbers are written.
    """
    torch.manual_seed(0)
    limits = _machine_limits()
    found: dict[str, Found] = {name: {} for name in shapes}
    if "memory" in parts:
        _pin_allocator()
    for name in shapes:
        for title, runs in _contests(SHAPES[name], parts).items():
            if "memory" in parts:
                peaks = {each: {"memory": _peak_memory(run[1])} for each, run in runs.items()}
                found[name][title] = peaks
                continue
            forward = _smallest({each: run[0] for each, run in runs.items()}, calls)
            both = _smallest({each: run[1] for each, run in runs.items()}, calls)
            found[name][title] = {e: {"forward": forward[e], "both": both[e]} for e in runs}
        if "kernels" in parts:
            found[name]["kernels"] = _kernels(SHAPES[name], 3 * calls)
            found[name]["parts"] = _parts_of_involution(SHAPES[name], 3 * calls)
    about = {"native": str(native_status().variant), "threads": torch.get_num_threads()}
    write_json(json, {**about, "limits": limits, "shapes": found})


def _smaller(one: Any, other: Any) -> Any:
    """Take the smaller of two times everywhere in two results of the same form."""
    if isinstance(one, dict):
        return {key: _smaller(one[key], other[key]) for key in one}
    return min(one, other) if isinstance(one, float) else one


def _column(about: dict[str, Any], shapes: tuple[str, ...], calls: int) -> Found:
    """Measure one column in a process of its own."""
    threads, everything = about.get("threads", 1), settings("speed")
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    environment |= everything["allocators"][about.get("allocator", "default")]
    environment |= everything["instructions"].get(about.get("instructions"), {})
    arguments = ["--parts", *about["parts"], "--shapes", *shapes, "--calls", threads * calls]
    return child("speed", "operators-part", *arguments, environment=environment)


def _measured(shapes: tuple[str, ...], calls: int, rounds: int) -> Found:
    """Measure all columns."""
    start, load = time.perf_counter(), os.getloadavg()[0]
    once = {k: v for k, v in SETTINGS["columns"].items() if "instructions" not in v}
    found = {name: _column(about, shapes, calls) for name, about in once.items()}
    for _ in range(rounds):
        for name in [name for name in SETTINGS["columns"] if name not in once]:
            new = _column(SETTINGS["columns"][name], shapes, calls)
            if new["native"] != name:
                print(f"{name} does not run on this machine: its kernels are {new['native']}")
                continue
            found[name] = _smaller(found[name], new) if name in found else new
    return {
        "machine": machine(),
        "load": [load, os.getloadavg()[0]],
        "minutes": (time.perf_counter() - start) / 60,
        "shapes": list(shapes),
        "columns": found,
    }


def operators(
    shapes: tuple[str, ...] = ("S1", "S2", "S3", "S4"),
    calls: int = 5,
    rounds: int = 3,
    read: Path | None = None,
    json: Path = Path("out/speed-operators.json"),
    write_docs: Path | None = None,
) -> None:
    """Time the operators against unfold and others' layers; nine minutes on two quiet cores.

    Each column is a process of its own. "default": one thread; torch's CPU allocator returns large
    blocks to the system, so an implementation that makes large temporaries pays for fresh pages on
    every call. "kept heap": an allocator that keeps its pages, which is kinder to unfold. "memory":
    the largest resident set above the one before the call. AVX-512 and AVX2 interleaved: the
    primitives and the layers, with AVX2 the convolution they are compared with as well. Two
    threads: the layers, by the wall clock.

    Args:
        shapes: S1 8×64×56², S2 8×128×28², S3 8×256×14², S4 8×512×7²; window 7×7, 16 channels per
            involution group, heads of 32.
        calls: of which the smallest time counts.
        rounds: of AVX-512 and AVX2.
        read: measure nothing, show these numbers.
        json: where the numbers are written.
        write_docs: renew the section of this page.
    """
    record = read_json(read) if read else _measured(shapes, calls, rounds)
    for table in tables(record):
        table.print()
    before, after = record["load"]
    print(f"{record['minutes']:.1f} minutes, load {before:.1f} to {after:.1f}")
    write_json(json, record)
    if write_docs:
        renew_section(write_docs, HEADING, section(record))
