"""The feature operators against what people use: time, memory, and the distance to the machine.

    python benchmarks/operators.py --json operators.json --write-docs docs/benchmarks.md
    python benchmarks/operators.py --quick
    python benchmarks/operators.py --read operators.json --write-docs docs/benchmarks.md

Some nine minutes on a quiet machine with two cores. Each column is a process of its own
(`operators_measure.py`):

- memory: all contestants, one thread, with an allocator that gives back what is freed.
- default: one thread, all contestants. torch's CPU allocator returns large blocks to the
  system, so an implementation that makes large temporaries pays for fresh pages on every call.
- kept heap: the same with an allocator that keeps its pages, which is kinder to unfold.
- AVX-512 and AVX2 in turns, one thread: the primitives and the layers, with AVX2 the convolution
  they are compared with as well.
- two threads: the layers, by the wall clock, with both allocators.

Shapes: S1 8×64×56², S2 8×128×28², S3 8×256×14², S4 8×512×7²; window 7×7, 16 channels per involution
group, heads of 32. Memory is the largest resident set above the one before the call.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _measure import machine, write_json
from operator_tables import print_tables, write_section

KEEP_HEAP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "100000000000"}
INSTRUCTIONS = {
    "avx512": {"ATEN_CPU_CAPABILITY": "avx512"},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
}
"""Torch and the native kernels are held to the first, convolutions to the second."""
MEASURE = Path(__file__).with_name("operators_measure.py")
Found = dict[str, Any]


def child(parts: list[str], shapes: list[str], calls: int, threads: int, **env: str) -> Found:
    """What one process measured."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "found.json"
        command = [sys.executable, str(MEASURE), "--json", str(file), "--calls", str(calls)]
        subprocess.run(
            [*command, "--parts", *parts, "--shapes", *shapes],
            env={**os.environ, "OMP_NUM_THREADS": str(threads), **env},
            check=True,
        )
        return dict(json.loads(file.read_text()))


def smaller(one: Any, other: Any) -> Any:
    """The smaller of two times everywhere in two results of the same form."""
    if isinstance(one, dict):
        return {key: smaller(one[key], other[key]) for key in one}
    return min(one, other) if isinstance(one, float) else one


def measure(shapes: list[str], calls: int, turns: int) -> Found:
    """All columns."""
    start, load = time.perf_counter(), os.getloadavg()[0]
    found = {
        "memory": child(["cores", "layers", "peers", "memory"], shapes, calls, 1),
        "default": child(["cores", "layers", "peers"], shapes, calls, 1),
        "kept heap": child(["cores", "layers", "peers"], shapes, calls, 1, **KEEP_HEAP),
    }
    for _ in range(turns):
        for name, environment in INSTRUCTIONS.items():
            new = child(["kernels", "layers"], shapes, calls, 1, **environment)
            if new["native"] != name:
                print(f"{name} does not run on this machine: its kernels are {new['native']}")
                continue
            found[name] = smaller(found[name], new) if name in found else new
    found["two threads"] = child(["layers"], shapes, 2 * calls, 2)
    found["two threads, kept heap"] = child(["layers"], shapes, 2 * calls, 2, **KEEP_HEAP)
    return {
        "machine": machine(),
        "load": [load, os.getloadavg()[0]],
        "minutes": (time.perf_counter() - start) / 60,
        "shapes": shapes,
        "columns": found,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--turns", type=int, default=3, help="of AVX-512 and AVX2")
    parser.add_argument("--quick", action="store_true", help="S4, one call, to see that it runs")
    parser.add_argument("--json", type=Path, help="write all numbers here")
    parser.add_argument("--read", type=Path, help="measure nothing, show these numbers")
    parser.add_argument("--write-docs", type=Path, help="renew the section of this page")
    arguments = parser.parse_args()
    if arguments.quick and arguments.write_docs:
        parser.error("--quick measures too little for a page")
    if arguments.read:
        record = json.loads(arguments.read.read_text())
    elif arguments.quick:
        record = measure(["S4"], 1, 1)
    else:
        record = measure(["S1", "S2", "S3", "S4"], arguments.calls, arguments.turns)
    print_tables(record)
    if arguments.json:
        write_json(arguments.json, record)
    if arguments.write_docs:
        write_section(arguments.write_docs, record)


if __name__ == "__main__":
    main()
