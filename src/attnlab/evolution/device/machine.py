"""The device that is tried: whether it is there, what it is, and how time is taken on it."""

from __future__ import annotations

import importlib.metadata
import platform
import statistics
import time
from collections.abc import Callable, Mapping

import torch

from attnlab._errors import OptionError
from attnlab.evolution._kernels import DTYPES, choose

_PACKAGES = ("attnlab", "torch", "triton", "natten")


def place(name: str) -> torch.device:
    """The device called `name`; an error where this machine has none."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    here = ["cpu"] + ([] if accelerator is None else [accelerator.type])
    kind, _, index = name.partition(":")
    count = 1 if kind == "cpu" else torch.accelerator.device_count()
    if kind not in here or (index and not (index.isdecimal() and int(index) < count)):
        raise OptionError(
            f"Expected a device of this machine but got {name!r}. It has: {', '.join(here)}. "
            f"`attnlab doctor` shows what torch {torch.__version__} sees."
        )
    return torch.device(name)


def facts(device: torch.device) -> dict[str, object]:
    """What a reader of the numbers needs to know of the machine."""
    versions: dict[str, str | None] = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    found: dict[str, object] = {
        "device": str(device),
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": versions,
        "threads": torch.get_num_threads(),
        "kernels": [str(choose(device.type, dtype)) for dtype in DTYPES],
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {
            "name": properties.name,
            "architecture": getattr(properties, "gcnArchName", "")
            or f"sm_{properties.major}{properties.minor}",
            "memory_gib": round(properties.total_memory / 2**30, 1),
            "multiprocessors": properties.multi_processor_count,
            "cuda": torch.version.cuda,
            "hip": torch.version.hip,
        }
    return found


def clock(device: torch.device) -> float:
    """Seconds: of this process on a CPU, which other work does not add to; else of the wall, when
    all that was asked of the device is done."""
    if device.type == "cpu":
        return time.process_time()
    torch.accelerator.synchronize(device)
    return time.perf_counter()


def median_seconds(
    runs: Mapping[str, Callable[[], object]],
    device: torch.device,
    blocks: int = 9,
    seconds_per_block: float = 0.02,
) -> dict[str, float]:
    """Seconds of a call of each, the median of blocks that take turns."""

    def block(run: Callable[[], object], calls: int) -> float:
        start = clock(device)
        for _ in range(calls):
            run()
        return (clock(device) - start) / calls

    calls = {}
    for name, run in runs.items():
        run()  # compiles, allocates and chooses blocks
        calls[name] = max(1, round(seconds_per_block / max(block(run, 1), 1e-6)))
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(blocks):
        for name, run in runs.items():
            found[name].append(block(run, calls[name]))
    return {name: statistics.median(seconds) for name, seconds in found.items()}
