"""Whole networks: gates put into timm's ResNet by `insert`, against timm's own with attention.

    python benchmarks/gate_networks.py                   about six minutes on one core
    python benchmarks/gate_networks.py --model resnet26 --seconds 2

Both have the same convolutions and the same attention behind the last norm of each block. Prints
one table and writes JSON. A ratio above 1 means that ours is faster.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import timm
import torch
import tyro
from _measure import print_table, write_json
from torch import nn

import attnlab

OPTIONS: dict[str, dict[str, object]] = {"cbam": {"official": True}, "ese": {"official": True}}
FORMATS = {"NCHW": torch.contiguous_format, "NHWC": torch.channels_last}


def passes(network: nn.Module, images: torch.Tensor, backward: bool) -> Callable[[], object]:
    """One forward run in eval mode without gradients, or one forward and backward in training."""
    network.train(backward)

    def run() -> None:
        with torch.set_grad_enabled(backward):
            output = network(images)
            if backward:
                output.sum().backward()

    return run


def main(
    model: str = "resnet50",
    gates: tuple[str, ...] = ("se", "eca", "cbam", "ese", "gc", "coord"),
    size: int = 128,
    batch: int = 8,
    seconds: float = 10.0,
    output: Path = Path("out/gate_networks.json"),
) -> None:
    """Compare `gates` in timm's `model`, on `batch` images of `size` pixels."""
    rows, results = [], []
    for gate in gates:
        plain = timm.create_model(model)
        ours, _ = attnlab.insert(plain, gate, **OPTIONS.get(gate, {}))
        peer = timm.create_model(model, block_args={"attn_layer": gate})
        for order, memory_format in FORMATS.items():
            images = torch.randn(batch, 3, size, size).contiguous(memory_format=memory_format)
            contestants = [n.to(memory_format=memory_format) for n in (ours, peer)]
            for backward in (False, True):
                runs = [passes(network, images, backward) for network in contestants]
                ratio = attnlab.latency(*runs, (), seconds=seconds)
                shown = f"{ratio.ratio:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"
                kind = "fwd+bwd" if backward else "fwd"
                times = f"{1e3 * ratio.before:.0f} / {1e3 * ratio.after:.0f}"
                rows.append([f"{model} + {gate}", order, kind, times, shown])
                results.append(
                    {
                        "gate": gate,
                        "order": order,
                        "pass": kind,
                        "ours_ms": ratio.before * 1e3,
                        "peer_ms": ratio.after * 1e3,
                        "ratio": ratio.ratio,
                        "interval": (ratio.low, ratio.high),
                    }
                )
    columns = ["network", "order", "pass", "ours / timm, ms", "x"]
    print_table(f"Networks, batch {batch}, {size} px: inserted gates against timm's", columns, rows)
    write_json(output, {"model": model, "cases": results})
    print(f"Wrote {output}.")


if __name__ == "__main__":
    tyro.cli(main)
