"""The device that is tried: whether it is there, what it is, how time is taken on it, and what it
can do at most (bytes moved and products summed per second)."""

from __future__ import annotations

import importlib.metadata
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from attnlab._errors import OptionError
from attnlab.evolution._kernels import DTYPES, kernel_for

_PACKAGES = ("attnlab", "torch", "triton", "natten")


def device_named(name: str) -> torch.device:
    """The device called `name`; an error if this machine has none."""
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


def machine_facts(device: torch.device) -> dict[str, object]:
    """Return what a reader of the numbers needs to know of the machine."""
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
        "kernels": [str(kernel_for(device.type, dtype)) for dtype in DTYPES],
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
    """Return the seconds of a call of each: the median of blocks, which are interleaved."""

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


@dataclass(frozen=True)
class Limits:
    """The limits of a device, measured and not taken from a data sheet."""

    bytes_per_second: float
    """The bytes that a copy moves, reading and writing counted."""
    flops_per_second: float
    """The rate of a product of square matrices in the storage type; float32 without TF32."""

    def floor(self, moved: float, flops: float) -> float:
        """Seconds that no kernel which moves and computes this much can beat."""
        return max(moved / self.bytes_per_second, flops / self.flops_per_second)


def limits(device: torch.device, dtype: torch.dtype, megabytes: int, side: int) -> Limits:
    """Copy `megabytes`, and multiply matrices of `side` × `side`."""
    block = torch.zeros(megabytes * 2**20 // dtype.itemsize, dtype=dtype, device=device)
    target = torch.empty_like(block)
    matrix = torch.randn(side, side, device=device).to(dtype)
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        copying, multiplying = median_seconds(
            {"copy": lambda: target.copy_(block), "product": lambda: matrix @ matrix}, device
        ).values()
    finally:
        torch.set_float32_matmul_precision(precision)
    moved = 2 * block.numel() * dtype.itemsize
    return Limits(moved / copying, 2 * side**3 / multiplying)
