"""What attention costs at inference, and that folding takes the cost away.

    python benchmarks/fold.py                                 everything, about an hour on one core
    python benchmarks/fold.py --networks resnet164@32 --seconds 1 --batch 2 --no-compiled

Each network is timed against the plain one in turns, in one process: plain, +SE, +SRM, +SPA, +CBAM,
+ASR(SE) as trained, folded, folded and fused; eager and compiled. `attnlab speed` has all of ASR's
Table 1.
Goal: folded/plain = 1.00 ± 0.02; for ResNets, folded and fused ≤ 0.85. Peak memory is measured in
eager mode: the largest sum of live tensors that one forward run allocates.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import tyro
from _measure import print_table, write_json
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten
from torch.utils.weak import WeakTensorKeyDictionary

import attnlab
from attnlab.surgery.insertion import attachments

NETWORKS: dict[str, tuple[str, int, int]] = {
    # label: (network, image size, images per run)
    "resnet164@32": ("resnet164", 32, 32),
    "resnet164@96": ("resnet164", 96, 8),
    "resnet50": ("timm:resnet50", 224, 4),
    "vit_small": ("timm:vit_small_patch16_224", 224, 4),
}
GATES = ("se", "srm", "spa", "cbam")


@dataclass(frozen=True)
class Row:
    """One contestant on one network."""

    network: str
    contestant: str
    compiled: bool
    parameters: int
    ratio: float
    """Time relative to the plain network's."""
    interval: tuple[float, float]
    """Of the ratio, 95 %."""
    milliseconds: float
    peak_megabytes: float
    """Beyond weights and input."""


class PeakMemory(TorchDispatchMode):
    """The largest sum of sizes of live tensors that operations made while entered."""

    def __init__(self) -> None:
        super().__init__()
        self.live = WeakTensorKeyDictionary()
        self.peak = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        del types
        output = function(*args, **(kwargs or {}))
        for leaf in tree_flatten(output)[0]:
            if isinstance(leaf, Tensor) and not leaf._is_view():
                self.live[leaf] = leaf.untyped_storage().nbytes()
        self.peak = max(self.peak, sum(self.live.values()))
        return output


def peak_megabytes(network: nn.Module, images: Tensor) -> float:
    """Of one forward run, weights and input not counted."""
    with torch.no_grad(), PeakMemory() as memory:
        network(images)
    return memory.peak / 1e6


def stirred(network: nn.Module) -> nn.Module:
    """Gates away from their start and branches away from 0, so that nothing is trivially equal."""
    with torch.no_grad():
        for _, attachment in attachments(network):
            for parameter in attachment.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        for name, parameter in network.named_parameters():
            if parameter.dim() == 1 and "attnlab" not in name:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return network.eval()


def contestants(plain: nn.Module, images: Tensor) -> Iterator[tuple[str, nn.Module]]:
    """The rows of the table, one network at a time."""
    for gate in GATES:
        yield f"+{gate}", stirred(attnlab.insert(plain, gate, example=images[:1])[0])
    trained = stirred(attnlab.insert(plain, "asr:se", example=images[:1])[0])
    yield "+asr:se as trained", trained
    yield "+asr:se folded", attnlab.fold(trained, example=images[:1])[0]
    yield "+asr:se folded, fused", attnlab.fold(trained, fuse=True, example=images[:1])[0]


def runner(network: nn.Module, images: Tensor, compiled: bool) -> Callable[[], object]:
    """One forward run without gradients."""
    if compiled:
        torch._dynamo.reset()
        network = torch.compile(network)  # type: ignore[assignment]

    def run() -> Tensor:
        with torch.inference_mode():
            return network(images)

    return run


def measure(label: str, compiled: bool, seconds: float, batch: int | None) -> list[Row]:
    """All contestants on one network."""
    name, size, images_per_run = NETWORKS[label]
    torch.manual_seed(0)
    plain = stirred(attnlab.create(name))
    images = torch.randn(batch or images_per_run, 3, size, size)
    run_plain = runner(plain, images, compiled)
    rows = []
    for contestant, network in (("plain", plain), *contestants(plain, images)):
        timing = attnlab.latency(run_plain, runner(network, images, compiled), (), seconds=seconds)
        rows.append(
            Row(
                label,
                contestant,
                compiled,
                sum(p.numel() for p in network.parameters()),
                timing.ratio,
                (timing.low, timing.high),
                1e3 * timing.after,
                peak_megabytes(network, images),
            )
        )
        print(f"{label} {contestant}: {rows[-1].ratio:.3f}", flush=True)
        del network
        gc.collect()
    return rows


def goal_met(row: Row) -> str:
    if row.contestant == "+asr:se folded":
        return "yes" if abs(row.ratio - 1) <= 0.02 else "no"
    if row.contestant.endswith("fused") and row.network.startswith("resnet") and not row.compiled:
        return "yes" if row.ratio <= 0.85 else "no"
    return ""


def main(
    networks: tuple[str, ...] = tuple(NETWORKS),
    seconds: float = 20.0,
    batch: int | None = None,
    eager: bool = True,
    compiled: bool = True,
    output: Path = Path("benchmarks/results/fold.json"),
) -> None:
    """Measure and print the tables.

    Args:
        networks: which of resnet164@32, resnet164@96, resnet50, vit_small.
        seconds: how long each pair is timed in turns, at most.
        batch: images per run, instead of each network's own number.
        eager: whether to measure eager mode.
        compiled: whether to measure torch.compile.
        output: JSON file to write.
    """
    rows: list[Row] = []
    for label in networks:
        for mode in [m for m, wanted in ((False, eager), (True, compiled)) if wanted]:
            found = measure(label, mode, seconds, batch)
            print_table(
                f"{label}, {'compiled' if mode else 'eager'}",
                ("network", "time / plain", "ms", "parameters", "peak MB", "goal"),
                [
                    (
                        row.contestant,
                        f"{row.ratio:.3f} [{row.interval[0]:.3f}, {row.interval[1]:.3f}]",
                        f"{row.milliseconds:.1f}",
                        f"{row.parameters:,}",
                        f"{row.peak_megabytes:.1f}",
                        goal_met(row),
                    )
                    for row in found
                ],
            )
            rows += found
            write_json(output, {"rows": [asdict(row) for row in rows]})


if __name__ == "__main__":
    tyro.cli(main)
