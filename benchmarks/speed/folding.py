"""What folding itself costs: its time in forwards of the plain network, and its peak memory.

`fold-cost-part` runs in a process of its own, whose resident set is measured: few imports here.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import tyro
from torch import Tensor, nn

import attnlab
from benchmarks._common import Table, child, interleave, settings, timed, write_json

NETWORKS: dict[str, dict[str, Any]] = settings("speed")["folding"]
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def _resident(word: str) -> float:
    """VmRSS, what is resident now, or VmHWM, the most that was since it was reset; in MiB."""
    found = re.search(rf"{word}:\s*(\d+) kB", _STATUS.read_text())
    assert found is not None
    return int(found[1]) / 1024


def _peak(run: Callable[[], object]) -> float:
    """How much more memory than before is resident at the worst moment of `run`, in MiB."""
    _RESET.write_text("5")
    before = _resident("VmRSS")
    run()
    return _resident("VmHWM") - before


def _plain(network: nn.Module, images: Tensor) -> None:
    with torch.no_grad():
        network(images)


def fold_cost_part(network: tyro.conf.Positional[str], rounds: int, json: Path) -> None:
    """Fold `asr:se` in one network in this process; `fold-cost` starts it for each.

    Args:
        network: name for attnlab.create.
        rounds: how often forward and fold are timed.
        json: where CPU seconds and memory in MiB are written.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    plain = attnlab.create(network).eval()
    side = NETWORKS[network]["side"]
    images = torch.randn(1, 3, side, side)
    gated, _ = attnlab.insert(plain, "asr:se", example=images)
    fold = partial(attnlab.fold, gated, example=images)
    weights = sum(p.numel() * p.element_size() for p in plain.parameters()) / 2**20
    _plain(plain, images)  # the first call chooses kernels and fills the heap
    attnlab.fold(attnlab.insert(attnlab.create("resnet20"), "asr:se")[0])  # imports timm
    memory = {"one_forward": _peak(partial(_plain, plain, images)), "fold": _peak(fold)}
    clocked = partial(timed, clock=time.process_time)
    contestants = {
        "forward": clocked(partial(_plain, plain, images)),
        "fold": clocked(fold),
    }
    times = {name: min(each) for name, each in interleave(contestants, rounds).items()}
    write_json(json, {"seconds": times, "mib": {"weights": weights, **memory}})


def fold_cost(
    networks: tuple[str, ...] = tuple(NETWORKS),
    rounds: int = 7,
    json: Path = Path("out/speed-fold-cost.json"),
) -> None:
    """Measure how long `fold` takes, in forwards, and how much memory, in weights; some minutes.

    One image, one thread, CPU time, the least of all rounds. Memory is what is resident beyond what
    was before, at the worst moment; "allowed" is four times the weights and one forward.

    Args:
        networks: which networks.
        rounds: how often forward and fold are timed.
        json: where the numbers are written.
    """
    if not _RESET.exists():
        raise SystemExit("The peak of a part of a process can be measured on Linux only.")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    rows, found = [], {}
    for name in networks:
        part = ("fold-cost-part", name, "--rounds", rounds)
        measured = child("speed", *part, environment=environment)
        found[name] = {"seconds": measured["seconds"], "mib": measured["mib"]}
        seconds, mib = measured["seconds"], measured["mib"]
        allowed = 4 * mib["weights"] + mib["one_forward"]
        forwards = f"{seconds['fold'] / seconds['forward']:.1f}"
        memory = [mib["weights"], mib["one_forward"], mib["fold"], allowed]
        goal = str(NETWORKS[name]["forwards"])
        rows.append([name, f"{1000 * seconds['forward']:.1f}", forwards, goal])
        rows[-1] += [f"{each:.0f}" for each in memory]
    columns = ["network", "forward (ms)", "fold (forwards)", "goal", "weights (MiB)"]
    columns += ["one forward", "fold, peak", "allowed"]
    Table("What fold costs", columns, rows).print()
    write_json(json, {"found": found})
