"""Each gate and the multiplication, against what a user would otherwise take.

    python benchmarks/gates.py                      all gates, about half an hour on one core
    python benchmarks/gates.py --gates se cbam --seconds 2

On Linux the C library is told to keep the memory that it was given: else the pages that one of the
two gave back are cleared in the other's time, and by chance one of them takes twice as long.

Prints one table and writes JSON; `gate_tables.py` takes the median of several. A ratio above 1
means that attnlab's gate is faster. timm's CBAM has a BatchNorm after its spatial convolution and
its effective SE a hard sigmoid, so ours are the ones that have them too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import torch
import tyro
from _measure import keep_memory, print_table, write_json
from gate_peers import PEERS
from torch import Tensor, nn

from attnlab import latency
from attnlab.gates import StageGate, StepGate, build_gate
from attnlab.timing import Latency

SHAPES = {
    "CIFAR 128x64x32x32": (128, 64, 32, 32),
    "CIFAR 128x256x8x8": (128, 256, 8, 8),
    "ImageNet 8x256x56x56": (8, 256, 56, 56),
    "ImageNet 8x2048x7x7": (8, 2048, 7, 7),
}
FORMATS = {"NCHW": torch.contiguous_format, "NHWC": torch.channels_last}
OPTIONS: dict[str, dict[str, object]] = {"cbam": {"official": True}, "ese": {"official": True}}
GOAL = 1.5
LEAST = 0.95


def gated(module: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    """The gated branch of a shortcut and a branch. As where a gate is inserted, its kind is found
    out once."""
    if isinstance(module, StepGate):
        return lambda shortcut, branch: branch * module(shortcut, branch)
    if isinstance(module, StageGate):
        return lambda _, branch: branch * module(branch, None)[0]
    if isinstance(module, nn.BatchNorm2d):
        return lambda _, branch: module(branch)
    return lambda _, branch: branch * module(branch)


def passes(
    forward: Callable[[Tensor, Tensor], Tensor], shortcut: Tensor, branch: Tensor, backward: bool
) -> Callable[[], object]:
    """One forward pass without gradients, or one forward and backward pass."""
    if not backward:

        def run() -> None:
            with torch.no_grad():
                forward(shortcut, branch)

        return run
    inputs = (shortcut.clone().requires_grad_(), branch.clone().requires_grad_())
    slope = torch.ones_like(branch)

    def run_both() -> None:
        inputs[0].grad = inputs[1].grad = None
        forward(*inputs).backward(slope)

    return run_both


def measure(
    name: str, shape: tuple[int, ...], order: str, backward: bool, seconds: float
) -> Latency:
    """Ours and its peer on one case; the ratio is how much longer the peer takes."""
    torch.manual_seed(0)
    ours = build_gate(name, shape[1], **OPTIONS.get(name, {}))
    peer = PEERS[name][1](shape[1])
    shortcut, branch = (
        torch.randn(shape).contiguous(memory_format=FORMATS[order]) for _ in range(2)
    )

    both = peer if name == "step" else lambda _, branch: peer(branch)
    return latency(
        passes(gated(ours), shortcut, branch, backward),
        passes(both, shortcut, branch, backward),
        (),
        seconds=seconds,
    )


def main(
    gates: tuple[str, ...] = tuple(PEERS),
    shapes: tuple[str, ...] = tuple(SHAPES),
    seconds: float = 5.0,
    output: Path = Path("out/gates.json"),
) -> None:
    """Compare `gates` with their peers on `shapes`, in turns for at most `seconds` per case."""
    keep_memory()
    rows, results = [], []
    totals = [0.0, 0.0]
    for name in gates:
        for shape in shapes:
            for order in FORMATS:
                ratios = [measure(name, SHAPES[shape], order, b, seconds) for b in (False, True)]
                for backward, ratio in zip((False, True), ratios, strict=True):
                    totals[0] += ratio.before
                    totals[1] += ratio.after
                    results.append(
                        {
                            "gate": name,
                            "peer": PEERS[name][0],
                            "shape": SHAPES[shape],
                            "order": order,
                            "backward": backward,
                            "ours_ms": ratio.before * 1e3,
                            "peer_ms": ratio.after * 1e3,
                            "ratio": ratio.ratio,
                            "interval": (ratio.low, ratio.high),
                        }
                    )
                times = [f"{1e3 * r.before:.2f} / {1e3 * r.after:.2f}" for r in ratios]
                speed = [f"{r.ratio:.2f} [{r.low:.2f}, {r.high:.2f}]" for r in ratios]
                rows.append([name, PEERS[name][0], shape, order, *times, *speed])
    columns = ["gate", "peer", "shape", "order", "fwd ms", "fwd+bwd ms", "fwd x", "fwd+bwd x"]
    print_table("Gate and multiplication: ours / peer", columns, rows)
    logs = [math.log(float(str(result["ratio"]))) for result in results]
    geometric = math.exp(sum(logs) / len(logs))
    slower = [r for r in results if float(str(r["ratio"])) < LEAST]
    print(f"Total time, peer / ours: {totals[1] / totals[0]:.2f}   geometric mean: {geometric:.2f}")
    print(f"Goal for the total: {GOAL}. Cases below {LEAST}: {len(slower)}")
    for r in slower:
        print(
            "  ",
            r["gate"],
            r["shape"],
            r["order"],
            "fwd+bwd" if r["backward"] else "fwd",
            r["ratio"],
        )
    summary = {"total_ratio": totals[1] / totals[0], "geometric_mean": geometric}
    write_json(output, {"summary": summary, "cases": results})
    print(f"Wrote {output}.")


if __name__ == "__main__":
    tyro.cli(main)
