"""The feature operators against what people use: time, memory, and the distance to the machine.

    OMP_NUM_THREADS=1 python benchmarks/operators.py
    OMP_NUM_THREADS=1 python benchmarks/operators.py --shapes S3 --calls 3 --no-peers
    OMP_NUM_THREADS=1 python benchmarks/operators.py --retained-heap

One process, contestants interleaved, smallest process time of several calls: on a shared machine
that is the figure which repeats. torch's CPU allocator returns large blocks to the system, so an
implementation that makes large temporaries pays for fresh pages on every call; `--retained-heap`
starts again with an allocator that keeps them, which is kinder to unfold. Memory is the largest
resident set above the one before the call.

Shapes: S1 8×64×56², S2 8×128×28², S3 8×256×14² (16 channels per involution group, heads of 32), C3,
C5, C7 are 32×64×32² with that window.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from _measure import machine, print_table
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.evolution import (
    Involution2d,
    LocalAttention2d,
    Window,
    av,
    local_attention,
    native_status,
    qk,
    sc,
    use_native,
)

SHAPES = {
    "S1": (8, 64, 56, 7),
    "S2": (8, 128, 28, 7),
    "S3": (8, 256, 14, 7),
    "C3": (32, 64, 32, 3),
    "C5": (32, 64, 32, 5),
    "C7": (32, 64, 32, 7),
}
Contest = Mapping[str, Callable[[], object]]
Runs = tuple[Callable[[], object], Callable[[], object]]
KEEP_HEAP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "100000000000"}


def smallest_times(contest: Contest, calls: int) -> dict[str, float]:
    """Seconds of process time, each contestant's smallest; one call of each in turn."""
    best = dict.fromkeys(contest, float("inf"))
    for run in contest.values():
        run()
    for _ in range(calls):
        for name, run in contest.items():
            start = time.process_time()
            run()
            best[name] = min(best[name], time.process_time() - start)
    return best


def pin_allocator() -> None:
    """Give every block above 64 KiB its own mapping, so that freed memory leaves the resident set.

    Otherwise glibc keeps what the timed calls freed, and peaks within it are invisible.
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


def forward_and_backward(
    function: Callable[..., Tensor], inputs: tuple[Tensor, ...], gradient: Tensor
) -> Runs:
    """The two runs of a contestant: without gradients, and with backward to all inputs."""

    def forward() -> object:
        with torch.no_grad():
            return function(*inputs)

    leaves = tuple(t.detach().requires_grad_() for t in inputs)

    def both() -> object:
        function(*leaves).backward(gradient)
        for leaf in leaves:
            leaf.grad = None
        return None

    return forward, both


def of_layer(layer: nn.Module, x: Tensor) -> Runs:
    """As above for a module: backward to the input and to its parameters."""
    layer.train()
    with torch.no_grad():
        gradient = torch.randn_like(layer(x))
    forward, both = forward_and_backward(layer, (x,), gradient)

    def both_and_clear() -> object:
        both()
        layer.zero_grad(set_to_none=True)
        return None

    return forward, both_and_clear


def in_torch(runs: Runs) -> Runs:
    """The same two runs on the pure-torch path."""

    def without_native(run: Callable[[], object]) -> Callable[[], object]:
        def inner() -> object:
            with use_native(False):
                return run()

        return inner

    return without_native(runs[0]), without_native(runs[1])


def unfold_involution(maps: Tensor, x: Tensor, size: int) -> Tensor:
    """As the authors' portable code aggregates."""
    batch, groups, _, height, width = maps.shape
    windows = F.unfold(x, size, padding=size // 2)
    windows = windows.view(batch, groups, -1, size * size, height, width)
    return (maps.unsqueeze(2) * windows).sum(3).view(batch, -1, height, width)


class UnfoldInvolution(nn.Module):
    """Our layer with the aggregation of the authors' portable code."""

    def __init__(self, channels: int, size: int) -> None:
        super().__init__()
        self.layer, self.size = Involution2d(channels, size), size

    def forward(self, x: Tensor) -> Tensor:
        return unfold_involution(self.layer.kernel(x).maps, x, self.size)


def unfold_attention(query: Tensor, key: Tensor, value: Tensor, heads: int, size: int) -> Tensor:
    """Stand-alone self-attention as usually written: unfold and einsum."""
    batch, channels, height, width = query.shape
    depth = channels // heads
    keys, values = (
        F.unfold(t, size, padding=size // 2).view(batch, heads, depth, -1, height, width)
        for t in (key, value)
    )
    queries = query.view(batch, heads, depth, height, width) * depth**-0.5
    scores = torch.einsum("bndhw,bndkhw->bnkhw", queries, keys)
    return torch.einsum("bnkhw,bndkhw->bndhw", scores.softmax(2), values).reshape(query.shape)


class UnfoldAttention(nn.Module):
    """1×1 projections around `unfold_attention`."""

    def __init__(self, channels: int, size: int, heads: int) -> None:
        super().__init__()
        self.project = nn.Conv2d(channels, 3 * channels, 1, bias=False)
        self.size, self.heads = size, heads

    def forward(self, x: Tensor) -> Tensor:
        return unfold_attention(*self.project(x).chunk(3, 1), self.heads, self.size)


class Deformable(nn.Module):
    """Modulated deformable 3×3 convolution with torchvision's operator."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        from torchvision.ops import DeformConv2d

        self.offsets = nn.Conv2d(channels, 27, 3, padding=1)
        self.convolution = DeformConv2d(channels, channels, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        offsets, mask = self.offsets(x).split((18, 9), dim=1)
        return self.convolution(x, offsets, mask.sigmoid())


def flex_forward(
    query: Tensor, key: Tensor, value: Tensor, heads: int, size: int
) -> Callable[[], object]:
    """torch's compiled flex_attention with a 2-D neighbourhood mask (no backward on a CPU)."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    width, tokens = query.shape[3], query.shape[2] * query.shape[3]
    reach = size // 2

    def near(_b: Any, _h: Any, q: Any, k: Any) -> Any:
        rows = (q // width - k // width).abs() <= reach
        return rows & ((q % width - k % width).abs() <= reach)

    mask = create_block_mask(near, None, None, tokens, tokens, device="cpu")
    parts = [
        t.flatten(2).unflatten(1, (heads, -1)).transpose(2, 3).contiguous()
        for t in (query, key, value)
    ]
    compiled = torch.compile(flex_attention)

    def run() -> object:
        with torch.no_grad():
            return compiled(*parts, block_mask=mask)

    return run


def limits(shape: tuple[int, int, int, int], calls: int) -> list[list[str]]:
    """Each native kernel, with the allocation of its output, beside one reading of its operands."""
    batch, channels, size, kernel = shape
    groups, window = channels // 16, Window.centred(kernel)
    x, y = torch.randn(2, batch, channels, size, size)
    maps = torch.randn(batch, groups, window.taps, size, size)
    out = torch.empty_like(x)
    times = smallest_times(
        {
            "read maps, copy x": lambda: (maps.sum(), out.copy_(x)),
            "av": lambda: av(maps, x, window),
            "qk": lambda: qk(y, x, groups, window),
            "sc": lambda: sc(maps, y, (size, size), window),
        },
        calls,
    )
    operations = 2 * x.numel() * window.taps
    floor = times.pop("read maps, copy x")
    return [
        [
            name,
            f"{1e3 * seconds:.2f}",
            f"{seconds / floor:.1f}",
            f"{operations / seconds / 1e9:.0f}",
        ]
        for name, seconds in times.items()
    ]


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


def cores(shape: tuple[int, int, int, int]) -> dict[str, dict[str, Any]]:
    """The aggregations alone: involution, and attention from query, key and value."""
    batch, channels, size, kernel = shape
    groups, heads, window = channels // 16, channels // 32, Window.centred(kernel)
    x, key, value, gradient = torch.randn(4, batch, channels, size, size)
    maps = torch.randn(batch, groups, window.taps, size, size)

    def involution(maps: Tensor, x: Tensor) -> Tensor:
        return av(maps, x, window)

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return local_attention(query, key, value, heads, window)

    depthwise = nn.Conv2d(channels, channels, kernel, padding=kernel // 2, groups=channels)
    return {
        "involution": {
            "unfold": forward_and_backward(
                lambda m, x: unfold_involution(m, x, kernel), (maps, x), gradient
            ),
            "attnlab": forward_and_backward(involution, (maps, x), gradient),
            "attnlab, pure torch": in_torch(forward_and_backward(involution, (maps, x), gradient)),
            "depthwise convolution": of_layer(depthwise, x),
        },
        "attention": {
            "unfold": forward_and_backward(
                lambda q, k, v: unfold_attention(q, k, v, heads, kernel), (x, key, value), gradient
            ),
            "attnlab": forward_and_backward(attention, (x, key, value), gradient),
            "attnlab, pure torch": in_torch(
                forward_and_backward(attention, (x, key, value), gradient)
            ),
        },
    }


def modules(shape: tuple[int, int, int, int], peers: bool) -> dict[str, Any]:
    """Whole layers, with their projections."""
    from timm.layers.cond_conv2d import CondConv2d

    _, channels, size, kernel = shape
    heads = channels // 32
    layers: dict[str, nn.Module] = {
        "attnlab involution": Involution2d(channels, kernel),
        "attnlab attention": LocalAttention2d(channels, channels, kernel, heads),
        "attnlab attention, relative": LocalAttention2d(
            channels, channels, kernel, heads, "relative"
        ),
        "convolution 3×3": nn.Conv2d(channels, channels, 3, padding=1, bias=False),
        "depthwise": nn.Conv2d(
            channels, channels, kernel, padding=kernel // 2, groups=channels, bias=False
        ),
        "unfold involution": UnfoldInvolution(channels, kernel),
        "unfold attention": UnfoldAttention(channels, kernel, heads),
    }
    if peers:
        from timm.layers.halo_attn import HaloAttn
        from timm.layers.lambda_layer import LambdaLayer

        block = 8 if size % 8 == 0 else 7
        layers["timm HaloAttn"] = HaloAttn(
            channels, num_heads=heads, block_size=block, halo_size=kernel // 2
        )
        layers["timm LambdaLayer"] = LambdaLayer(channels, r=kernel)
        if size <= 28:
            from timm.layers.bottleneck_attn import BottleneckAttn

            layers["timm BottleneckAttn"] = BottleneckAttn(
                channels, feat_size=(size, size), num_heads=heads
            )
        layers["DCNv2 3×3"] = Deformable(channels)
        layers["timm CondConv 3×3"] = _RoutedCondConv(CondConv2d(channels, channels, 3, padding=1))
    return layers


class _RoutedCondConv(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.route = nn.Linear(layer.in_channels, layer.num_experts)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, self.route(x.mean((2, 3))).sigmoid())


def rows_of(
    runs: Mapping[str, Runs],
    baseline: str,
    calls: int,
) -> list[dict[str, Any]]:
    """Time of each contestant and its ratio to `baseline`."""
    forward = smallest_times({name: run[0] for name, run in runs.items()}, calls)
    both = smallest_times({name: run[1] for name, run in runs.items()}, calls)
    return [
        {
            "name": name,
            "forward_ms": 1e3 * forward[name],
            "both_ms": 1e3 * both[name],
            "forward_ratio": forward[baseline] / forward[name],
            "both_ratio": both[baseline] / both[name],
        }
        for name in runs
    ]


def add_memory(rows: list[dict[str, Any]], runs: Mapping[str, Runs], baseline: str) -> None:
    """Peak memory of forward with backward, and its ratio to `baseline`."""
    memory = {name: peak_memory(run[1]) for name, run in runs.items()}
    for row in rows:
        row["memory_mib"] = memory[row["name"]]
        row["memory_ratio"] = memory[baseline] / max(memory[row["name"]], 1 / 256)


def show(title: str, rows: list[dict[str, Any]], baseline: str) -> None:
    """One table; ratios above 1 mean better than the baseline."""
    print_table(
        f"{title} (ratios to {baseline})",
        ("", "forward ms", "×", "with backward ms", "×", "peak MiB", "1/×"),
        [
            [
                row["name"],
                f"{row['forward_ms']:.1f}",
                f"{row['forward_ratio']:.1f}",
                f"{row['both_ms']:.1f}",
                f"{row['both_ratio']:.1f}",
                f"{row['memory_mib']:.0f}",
                f"{row['memory_ratio']:.1f}",
            ]
            for row in rows
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", nargs="+", default=["S1", "S2", "S3"], choices=SHAPES)
    parser.add_argument("--calls", type=int, default=7)
    parser.add_argument("--no-peers", action="store_true", help="leave out timm and torchvision")
    parser.add_argument("--flex", action="store_true", help="also compile flex_attention (slow)")
    parser.add_argument("--retained-heap", action="store_true", help="allocator keeps its pages")
    parser.add_argument("--json", type=Path, help="write all numbers here")
    arguments = parser.parse_args()
    if arguments.retained_heap and os.environ.get("MALLOC_MMAP_MAX_") != "0":
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEP_HEAP})
    torch.manual_seed(0)
    record: dict[str, Any] = {
        "machine": machine(),
        "native": str(native_status().variant),
        "retained_heap": arguments.retained_heap,
        "limits": machine_limits(),
    }
    print(native_status())
    print({name: round(value, 1) for name, value in record["limits"].items()})
    peers = not arguments.no_peers
    for name in arguments.shapes:
        shape, found = SHAPES[name], {}
        for title, baseline, runs in contests(shape, peers):
            found[title] = rows_of(runs, baseline, arguments.calls)
        found["limits"] = limits(shape, max(arguments.calls, 10))
        if arguments.flex:
            found["flex"] = flex_ratio(shape, arguments.calls)
        record[name] = found
    pin_allocator()  # after the timing: it makes every large allocation slower
    for name in arguments.shapes:
        found = record[name]
        for title, baseline, runs in contests(SHAPES[name], peers):
            add_memory(found[title], runs, baseline)
            show(f"{name} {title}", found[title], baseline)
        print_table(
            f"{name} kernels against reading their operands once",
            ("", "ms", "× floor", "GFLOP/s"),
            found["limits"],
        )
        if arguments.flex:
            print(f"{name} compiled flex_attention / attnlab, forward: {found['flex']:.1f}")
    if arguments.json:
        temporary = arguments.json.with_suffix(".tmp")
        temporary.write_text(json.dumps(record, indent=1))
        temporary.replace(arguments.json)


def contests(
    shape: tuple[int, int, int, int], peers: bool
) -> Iterator[tuple[str, str, Mapping[str, Runs]]]:
    """Title, baseline and contestants of each table."""
    for title, runs in cores(shape).items():
        yield f"{title} core", "unfold", runs
    x = torch.randn(shape[0], shape[1], shape[2], shape[2])
    layers = {title: of_layer(layer, x) for title, layer in modules(shape, peers).items()}
    yield "whole layers", "convolution 3×3", layers


def flex_ratio(shape: tuple[int, int, int, int], calls: int) -> float:
    """Forward time of compiled flex_attention over ours."""
    batch, channels, size, kernel = shape
    heads = channels // 32
    query, key, value = torch.randn(3, batch, channels, size, size)

    def ours() -> object:
        with torch.no_grad():
            return local_attention(query, key, value, heads, Window.centred(kernel))

    flex = flex_forward(query, key, value, heads, kernel)
    times = smallest_times({"ours": ours, "flex": flex}, calls)
    return times["flex"] / times["ours"]


if __name__ == "__main__":
    main()
