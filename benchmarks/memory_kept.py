"""Training on a CPU with the C library's default, and told to keep the memory it was given.

    python benchmarks/memory_kept.py
    python benchmarks/memory_kept.py --turns 8 --json memory.json
    python benchmarks/memory_kept.py --quick

torch asks the C library for every tensor of a step and gives it back. glibc returns large blocks to
the system, which clears their pages again at the next step; with `MALLOC_TRIM_THRESHOLD_` and
`MALLOC_MMAP_THRESHOLD_` (or no maps at all, `MALLOC_MMAP_MAX_=0`) it keeps them. Each turn is one
process per setting, in an order that changes, because the setting is read when a process starts; a
process trains some steps of SGD on fixed batches and reports its fastest and its median step, the
pages it had to be given in a step, and its largest resident set. Ratios are taken within a turn:
the median over turns, with the smallest and the largest, and the default against itself for the
noise. About ten minutes on a quiet machine with two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from _measure import print_table, write_json

KEPT = str(16 * 2**30)
LARGEST_THRESHOLD = str(32 * 2**20)
"""Many versions of glibc refuse a larger one without a word."""
SETTINGS: dict[str, dict[str, str]] = {
    "default": {},
    "default again": {},
    "keep the heap": {
        "MALLOC_TRIM_THRESHOLD_": KEPT,
        "MALLOC_MMAP_THRESHOLD_": LARGEST_THRESHOLD,
    },
    "never map": {"MALLOC_TRIM_THRESHOLD_": KEPT, "MALLOC_MMAP_MAX_": "0"},
}
NETWORKS = {"resnet20": 128, "resnet56": 128, "torchvision:resnet18": 16}
SIDES = {"resnet20": 32, "resnet56": 32, "torchvision:resnet18": 112}
Found = dict[str, float]


def train(name: str, batch: int, steps: int) -> Found:
    """Seconds of a step in this process, and its memory in MiB."""
    import torch
    from torch.nn import functional as F

    import attnlab

    torch.manual_seed(0)
    net = attnlab.create(name, num_classes=10).train()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, fused=True)
    images, labels = torch.randn(batch, 3, SIDES[name], SIDES[name]), torch.arange(batch) % 10
    seconds, faults = [], 0
    for step in range(steps + 2):
        if step == 2:  # the first ones fill the heap
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(net(images), labels).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    seconds = seconds[2:]
    return {
        "median": statistics.median(seconds),
        "fastest": min(seconds),
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "faults": faults / steps,
    }


def other_process(setting: str, name: str, batch: int, steps: int, threads: int) -> Found:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
    environment |= {"OMP_NUM_THREADS": str(threads), **SETTINGS[setting]}
    command = [sys.executable, __file__, "--child", name, str(batch), str(steps)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def compare(
    networks: list[str], turns: int, steps: int, threads: int, batches: dict[str, int]
) -> list[dict[str, Any]]:
    """Each setting against the default of its turn."""
    found = []
    for name in networks:
        rounds: list[dict[str, Found]] = []
        for turn in range(turns):
            order = list(SETTINGS)
            order = order[turn % len(order) :] + order[: turn % len(order)]
            one = {
                setting: other_process(setting, name, batches[name], steps, threads)
                for setting in order
            }
            rounds.append(one)
            print(name, turn, {k: round(v["median"], 4) for k, v in one.items()}, flush=True)
        for setting in SETTINGS:
            ratios = [one[setting]["median"] / one["default"]["median"] for one in rounds]
            fastest = [one[setting]["fastest"] / one["default"]["fastest"] for one in rounds]
            found.append(
                {
                    "network": name,
                    "setting": setting,
                    "ratio": statistics.median(ratios),
                    "smallest": min(ratios),
                    "largest": max(ratios),
                    "ratio_of_fastest": statistics.median(fastest),
                    "memory_mib": statistics.median(one[setting]["memory"] for one in rounds),
                    "faults_per_step": statistics.median(one[setting]["faults"] for one in rounds),
                    "rounds": [one[setting] for one in rounds],
                }
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="resnet20, batch 8, one turn")
    parser.add_argument("--json", type=Path, help="write all numbers here")
    parser.add_argument("--child", nargs=3, metavar=("NETWORK", "BATCH", "STEPS"), help="internal")
    arguments = parser.parse_args()
    if arguments.child:
        name, batch, steps = arguments.child
        print(json.dumps(train(name, int(batch), int(steps))))
        return
    if os.confstr("CS_GNU_LIBC_VERSION") is None:
        raise SystemExit("These settings are glibc's, and this C library is another one.")
    networks, turns, steps, batches = (
        arguments.networks,
        arguments.turns,
        arguments.steps,
        dict(NETWORKS),
    )
    if arguments.quick:
        networks, turns, steps, batches = ["resnet20"], 1, 3, {"resnet20": 8}
    load = os.getloadavg()[0]
    found = compare(networks, turns, steps, arguments.threads, batches)
    print_table(
        f"Time of a step / default of the same turn, {arguments.threads} threads, {turns} turns",
        ("network", "setting", "median", "from", "to", "fastest steps", "MiB", "faults a step"),
        [
            [
                row["network"],
                row["setting"],
                *(f"{row[key]:.3f}" for key in ("ratio", "smallest", "largest")),
                f"{row['ratio_of_fastest']:.3f}",
                f"{row['memory_mib']:.0f}",
                f"{row['faults_per_step']:.0f}",
            ]
            for row in found
        ],
    )
    print(f"load {load:.1f} before, {os.getloadavg()[0]:.1f} after")
    if arguments.json:
        write_json(arguments.json, {"load": load, "settings": SETTINGS, "found": found})


if __name__ == "__main__":
    main()
