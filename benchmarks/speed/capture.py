"""What watching a network costs, against the plain forward and against other libraries."""

from __future__ import annotations

import copy
import importlib
import importlib.metadata
import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

import attnlab
from attnlab.instruments.stiffness import Captured, tns
from attnlab.instruments.stiffness.capture import capture as watched_steps
from attnlab.instruments.stiffness.measure import stiffness
from attnlab.instruments.stiffness.native import use_native
from benchmarks._common import (
    Table,
    child,
    interleave,
    machine,
    paragraph,
    renew_section,
    settings,
    timed,
    write_json,
)

GOALS: dict[str, str] = settings("speed")["capture"]["goals"]
INSTRUCTIONS: dict[str, dict[str, str]] = settings("speed")["instructions"]
HEADING = "## Capture: `python -m benchmarks.speed capture`"
Found = dict[str, Any]
Part = Literal["forward", "tns", "memory", "others"]


@torch.compile(dynamic=False)
def _sums(x: Tensor, f: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    axes = tuple(range(1, x.ndim))
    change = torch.maximum(f, -x)
    return (x * x).sum(axes), (f * f).sum(axes), (change * change).sum(axes)


def _compiled_norms(x: Tensor, f: Tensor, inputs: int, activation: object) -> tuple[Tensor, ...]:
    del inputs, activation
    return tuple(total.sqrt() for total in _sums(x, f))


def _read(x: Tensor, f: Tensor, inputs: int, activation: object) -> tuple[Tensor, ...]:
    """Compute no norms: read both tensors in the order of memory, once."""
    del activation
    either = x.as_strided((x.numel(),), (1,)).sum() + f.as_strided((f.numel(),), (1,)).sum()
    return (either.expand(inputs),) * 3


@contextmanager
def _reduction(name: str) -> Iterator[None]:
    """Use one of the reductions inside the block."""
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
def _clocked(clock: list[float]) -> Iterator[None]:
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


def _paired(
    plain: Callable[[], object], watched: Callable[[], object], clock: list[float], rounds: int
) -> tuple[float, float]:
    """Return the median ratio of watched to plain, and the median share of the clock in watched."""
    run_plain, run_watched = timed(plain), timed(watched)

    def with_clock() -> tuple[float, float]:
        clock[0] = 0.0
        seconds = run_watched()
        return seconds, clock[0] / seconds

    times = interleave(
        {"plain": lambda: (run_plain(), 0.0), "watched": with_clock}, rounds, warm_up=2
    )
    pairs = zip(times["watched"], times["plain"], strict=True)
    shares = [share for _, share in times["watched"]]
    return statistics.median(w[0] / p[0] for w, p in pairs), statistics.median(shares)


def _forward(networks: tuple[str, ...], batch: int, rounds: int) -> list[Found]:
    found = []
    for name in networks:
        for layout in (torch.contiguous_format, torch.channels_last):
            net = attnlab.create(name).eval().to(memory_format=layout)
            images = torch.randn(batch, 3, 32, 32).to(memory_format=layout)
            twin = copy.deepcopy(net)
            for way in GOALS:
                clock = [0.0]
                with torch.no_grad(), _reduction(way), _clocked(clock), watched_steps(twin):
                    runs = (partial(net, images), partial(twin, images))
                    ratio, share = _paired(*runs, clock, rounds)
                row = {"network": name, "layout": str(layout).removeprefix("torch.")}
                found.append({**row, "reduction": way, "share": share, "ratio": ratio})
    return found


def _torchlens(net: nn.Module, images: Tensor) -> Callable[[], object]:
    torchlens = importlib.import_module("torchlens")
    return lambda: torchlens.trace(net, images)


def _blocks(net: nn.Module) -> dict[str, nn.Module]:
    return {n: m for n, m in net.named_modules() if type(m).__name__.endswith("Block")}


def _nnsight(net: nn.Module, images: Tensor) -> Callable[[], object]:
    wrapped = importlib.import_module("nnsight").NNsight(net)
    blocks = list(_blocks(net))

    def run() -> None:
        with wrapped.trace(images):
            for name in blocks:
                wrapped.get(name).output.save()

    return run


def _captum(net: nn.Module, images: Tensor) -> Callable[[], object]:
    attribution = importlib.import_module("captum.attr").LayerActivation
    blocks = list(_blocks(net).values())
    return lambda: attribution(net, blocks).attribute(images)


# torchlens is the last: it wraps torch's functions for the rest of the process.
OTHERS = {"captum": _captum, "nnsight": _nnsight, "torchlens": _torchlens}


def _others(networks: tuple[str, ...], batch: int, rounds: int) -> list[Found]:
    """Time a forward watched by each library against a plain one, or say why it was not."""
    found = []
    for library, build in OTHERS.items():
        for name in networks:
            net, images = attnlab.create(name).eval(), torch.randn(batch, 3, 32, 32)
            one: Found = {"library": library, "network": name, "version": None, "ratio": None}
            try:
                one["version"] = importlib.metadata.version(library)
                watched = build(net, images)
                with torch.no_grad():
                    runs = (partial(net, images), watched)
                    one["ratio"], _ = _paired(*runs, [0.0], max(1, rounds // 3))
            except Exception as error:  # whatever they do, the others are still measured
                one["reason"] = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            found.append(one)
    return found


def _tns_milliseconds() -> float:
    values, stages = torch.rand(10_000, 54), torch.arange(54) // 18
    times = interleave({"tns": timed(lambda: tns(values, stages))}, 30)
    return 1e3 * statistics.median(times["tns"])


def _memory(inputs: tuple[int, ...]) -> dict[int, float]:
    """Return the peak memory in MB by the number of inputs, which must grow."""
    net = attnlab.create("resnet20").eval()
    found = {}
    for number in inputs:
        batches = (torch.randn(100, 3, 32, 32) for _ in range(number // 100))
        stiffness(net, batches, progress=False)
        found[number] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


def capture(
    networks: tuple[str, ...] = ("resnet56", "resnet110"),
    batch: int = 128,
    rounds: int = 15,
    parts: tuple[Part, ...] = ("forward", "tns", "memory", "others"),
    inputs: tuple[int, ...] = (1_000, 10_000, 50_000),
    instructions: tuple[Literal["avx512", "avx2"], ...] = (),
    json: Path = Path("out/speed-capture.json"),
    write_docs: Path | None = None,
) -> None:
    """Time watched forwards against plain ones, and other libraries that watch; 13 minutes.

    Two numbers per case: the share of the time spent inside the measuring functions, and the ratio
    of a whole watched forward to a plain one. The share is the steadier one on a busy machine.
    "reading" is the floor: both tensors of a step are summed, and nothing is computed of them.
    torchlens, nnsight and captum are measured if installed; all three keep the tensors they see.

    Args:
        networks: names for attnlab.create.
        batch: images of a forward.
        rounds: how often each pair is timed.
        parts: what to measure.
        inputs: after how many inputs peak memory is read.
        instructions: a process of its own for each of these instruction sets, to which torch,
            oneDNN and the native kernels are held; the compiled reduction chooses its own. Only
            the first measures more than the forward part.
        json: where the numbers are written.
        write_docs: renew the section of this page.
    """
    if instructions:
        same = ["--networks", *networks, "--batch", batch, "--rounds", rounds, "--inputs", *inputs]
        found = []
        for name in instructions:
            wanted = ("forward",) if found else parts
            environment = {**os.environ, **INSTRUCTIONS[name]}
            arguments = ("capture", *same, "--parts", *wanted)
            found += child("speed", *arguments, environment=environment)["found"]
    else:
        torch.set_num_threads(1)
        one: Found = {"instructions": torch.backends.cpu.get_cpu_capability()}
        one["forward"] = _forward(networks, batch, rounds) if "forward" in parts else []
        one["tns_ms"] = _tns_milliseconds() if "tns" in parts else None
        one["memory_mb"] = _memory(inputs) if "memory" in parts else {}
        one["others"] = _others(networks, batch, rounds) if "others" in parts else []
        found = [one]
        for table in _tables(one):
            table.print()
    write_json(json, {"found": found})
    if write_docs:
        renew_section(write_docs, HEADING, _section(found))


def _tables(one: Found) -> Iterator[Table]:
    """Yield all that one process measured, for the terminal."""
    rows = [
        [
            r["network"],
            r["layout"],
            r["reduction"],
            f"{100 * r['share']:.1f} %",
            f"{r['ratio']:.3f}",
        ]
        for r in one["forward"]
    ]
    columns = ["network", "layout", "reduction", "share inside", "watched / plain"]
    yield Table(f"Watched forwards, {one['instructions']}", columns, rows)
    rows = [[f"peak memory after {n} inputs", f"{m:.0f} MB"] for n, m in one["memory_mb"].items()]
    if one["tns_ms"] is not None:
        rows.append(["exact TNS, 10,000 inputs × 54 steps", f"{one['tns_ms']:.1f} ms"])
    for row in one["others"]:
        ratio = row.get("reason") or f"{row['ratio']:.3f} × plain"
        rows.append([f"{row['library']} on {row['network']}", ratio])
    yield Table("Besides", ["what", "found"], rows)


def _section(found: list[Found]) -> str:
    """Return what the page says."""
    of, first = machine(), found[0]
    text = (
        "Share of the time spent inside the measuring functions, batch 128 of 32×32, contiguous / "
        "channels last, one thread. *Reading* is the floor: both tensors of a step are summed and "
        f"nothing else is done. {of['processor']}, torch {of['torch']}, {of['date']}; load of the "
        f"machine {os.getloadavg()[0]:.1f} at the end."
    )
    parts = [paragraph(text)]
    for one in found:
        networks = list(dict.fromkeys(row["network"] for row in one["forward"]))
        rows = [
            [way, goal, *(_shares(one["forward"], name, way) for name in networks)]
            for way, goal in GOALS.items()
        ]
        table = Table("", ["reduction", "goal", *networks], rows)
        parts += [f"{one['instructions']}:", table.markdown()]
    if first["others"]:
        parts += [paragraph(_others_text(first["others"]))]
    if first["tns_ms"] is not None:
        parts += [f"TNS of 10,000 inputs × 54 blocks takes {first['tns_ms']:.1f} ms."]
    return "\n\n".join(parts)


def _shares(rows: list[Found], network: str, way: str) -> str:
    mine = [r for r in rows if (r["network"], r["reduction"]) == (network, way)]
    shares = [f"{100 * row['share']:.1f}" for row in mine]
    return f"{' / '.join(shares)} %"


def _others_text(rows: list[Found]) -> str:
    told = [
        f"{row['library']} {row['version']} on {row['network']} {row['ratio']:.2f}"
        if row["ratio"] is not None
        else f"{row['library']} was not measured ({row['reason']})"
        for row in rows
    ]
    return (
        "Others that watch a network, whole watched forward to plain, contiguous (they keep the "
        f"tensors, attnlab keeps norms): {', '.join(dict.fromkeys(told))}."
    )
