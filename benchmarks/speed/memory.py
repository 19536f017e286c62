"""Memory that the C library keeps, or gives back, between the steps of a training.

`memory-part` runs in processes of its own, whose resident set is measured: few imports here.
"""

from __future__ import annotations

import os
import resource
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import torch
import tyro
from torch import Tensor, nn
from torch.nn import functional as F

import attnlab
from benchmarks._common import Table, child, interleave, settings, timed, write_json

MEMORY = settings("speed")["memory"]["networks"]
ALLOCATORS: dict[str, dict[str, str]] = settings("speed")["allocators"]


def sgd_step(
    network: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor
) -> None:
    """Train one step."""
    optimizer.zero_grad()
    F.cross_entropy(network(images), labels).backward()
    optimizer.step()


def memory_part(network: tyro.conf.Positional[str], batch: int, steps: int, json: Path) -> None:
    """Train some steps in this process; `memory` starts it with each setting.

    Args:
        network: name for attnlab.create.
        batch: images of a step.
        steps: how many.
        json: where seconds of a step, memory in MiB and faults are written.
    """
    torch.manual_seed(0)
    net = attnlab.create(network, num_classes=10).train()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, fused=True)
    side = MEMORY[network]["size"]
    images, labels = torch.randn(batch, 3, side, side), torch.arange(batch) % 10
    step = timed(partial(sgd_step, net, optimizer, images, labels))
    for _ in range(2):  # the first ones fill the heap
        step()
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    seconds = [step() for _ in range(steps)]
    used = resource.getrusage(resource.RUSAGE_SELF)
    found = {"median": statistics.median(seconds), "fastest": min(seconds)}
    found |= {"memory": used.ru_maxrss / 1024, "faults": (used.ru_minflt - faults) / steps}
    write_json(json, found)


def _against_default(name: str, rounds: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Compare each setting with the default of its round."""
    found = []
    for setting, mine in rounds.items():
        pairs = list(zip(mine, rounds["default"], strict=True))
        ratios = [one["median"] / other["median"] for one, other in pairs]
        fastest = [one["fastest"] / other["fastest"] for one, other in pairs]
        row = {"network": name, "setting": setting, "ratio": statistics.median(ratios)}
        row |= {"smallest": min(ratios), "largest": max(ratios)}
        row |= {"ratio_of_fastest": statistics.median(fastest)}
        row |= {"memory_mib": statistics.median(one["memory"] for one in mine)}
        row |= {"faults_per_step": statistics.median(one["faults"] for one in mine)}
        found.append({**row, "rounds": mine})
    return found


def _memory_table(found: list[dict[str, Any]], about: str) -> Table:
    columns = (
        "network",
        "setting",
        "median",
        "from",
        "to",
        "fastest steps",
        "MiB",
        "faults a step",
    )
    ratios = ("ratio", "smallest", "largest", "ratio_of_fastest")
    rows = [
        [
            *(row["network"], row["setting"], *(f"{row[key]:.3f}" for key in ratios)),
            *(f"{row[key]:.0f}" for key in ("memory_mib", "faults_per_step")),
        ]
        for row in found
    ]
    return Table(f"Time of a step / default of the same round, {about}", columns, rows)


def memory(
    networks: tuple[str, ...] = tuple(MEMORY),
    rounds: int = 5,
    steps: int = 10,
    threads: int = 2,
    batch: int | None = None,
    json: Path = Path("out/speed-memory.json"),
) -> None:
    """Time training with the C library's default, and told to keep the memory it was given.

    torch asks the C library for every tensor of a step and gives it back. glibc returns large
    blocks to the system, which clears their pages again at the next step; told so, it keeps them.
    Each round is one process per setting, because the setting is read when a process starts; ratios
    are taken within a round, and the default against itself shows the noise. Ten minutes.

    Args:
        networks: which networks.
        rounds: how often every setting is run.
        steps: of each process.
        threads: of each process.
        batch: images of a step, instead of each network's own number.
        json: where the numbers are written.
    """
    if os.confstr("CS_GNU_LIBC_VERSION") is None:
        raise SystemExit("These settings are glibc's, and this C library is another one.")
    load, found = os.getloadavg()[0], []
    plain = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
    plain["OMP_NUM_THREADS"] = str(threads)
    for name in networks:
        part = ("memory-part", name, "--steps", steps, "--batch", batch or MEMORY[name]["batch"])
        contestants = {
            setting: partial(child, "speed", *part, environment={**plain, **changed})
            for setting, changed in ALLOCATORS.items()
        }
        found += _against_default(name, interleave(contestants, rounds, warm_up=0))
    _memory_table(found, f"{threads} threads, {rounds} rounds").print()
    print(f"load {load:.1f} before, {os.getloadavg()[0]:.1f} after")
    write_json(json, {"load": load, "settings": ALLOCATORS, "found": found})
