"""Why networks of involutions explode, and what start or norm keeps them bounded.

    python examples/involution_start.py                    about four minutes on one core
    python examples/involution_start.py --seeds 1 --epochs 2

An involution multiplies its input by maps that are made of its input. First an untrained ResNet-50
whose 3×3 convolutions are involutions of 7×7, in eval mode, where BatchNorm divides by statistics
that it has not seen yet. Then the small ResNet of `operators_study.py` on handwritten digits: NSI
before and after training, and the accuracy of the last epoch.

Starts: "paper" is the authors'; "linear" begins with maps that do not depend on the input. Norms:
"batch" is the authors' BatchNorm between the two convolutions that make the maps; "group" is a
GroupNorm with one group in its place, which divides by the statistics of each image in eval mode
too.
"""

from __future__ import annotations

import argparse
import statistics
import warnings

import torch
import torchvision
from operators_study import OPERATORS, TEST_IMAGES, accuracy, digits, mean_nsi, network, train
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from attnlab.evolution import Involution2d, ReplaceWarning, replace

VARIANTS = (("paper", "batch"), ("paper", "group"), ("linear", "batch"), ("linear", "group"))


def normed(net: nn.Module, norm: str) -> nn.Module:
    """`net` with `norm` inside its involutions, in place."""
    for layer in net.modules():
        if norm == "group" and isinstance(layer, Involution2d):
            layer.reduce[1] = nn.GroupNorm(1, layer.reduce[0].out_channels)
    return net


def take_statistics(net: nn.Module, images: Tensor) -> None:
    """Let every BatchNorm of `net` see `images`, as training would; nothing is learned."""
    for norm in net.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.reset_running_stats()
            norm.momentum = None  # the plain mean of all batches
    net.train()
    with torch.no_grad():
        for batch in images.split(16):
            net(batch)
    net.eval()


def largest(net: nn.Module, images: Tensor) -> float:
    with torch.no_grad():
        return float(net(images).abs().max())


def untrained() -> list[list[str]]:
    """Largest output of ResNet-50 in eval mode, before and after BatchNorm saw 64 images."""
    torch.manual_seed(0)
    plain = torchvision.models.resnet50().eval()
    images, seen = torch.randn(8, 3, 64, 64), torch.randn(64, 3, 64, 64)
    nets = {("convolution", ""): plain}
    for start, norm in VARIANTS:
        torch.manual_seed(1)
        net, _ = replace(plain, "involution", where="layer*.conv2", kernel_size=7, start=start)
        nets[f"involution, {start}", norm] = normed(net, norm)
    rows = []
    for names, net in nets.items():
        fresh = largest(net, images)
        take_statistics(net, seen)
        rows.append([*names, f"{fresh:.3g}", f"{largest(net, images):.3g}"])
    return rows


def trained(seeds: int, epochs: int) -> list[list[str]]:
    """Mean NSI before and after training on digits, and accuracy."""
    x, y = digits()
    test_x, test_y = x[-TEST_IMAGES:], y[-TEST_IMAGES:]
    rows = []
    for start, norm in (("convolution", ""), *VARIANTS):
        found = []
        for seed in range(seeds):
            if start == "convolution":
                net = network(start, seed)
            else:
                OPERATORS["involution"]["start"] = start
                net = normed(network("involution", seed), norm)
            take_statistics(net, x[:-TEST_IMAGES][:256])
            before = mean_nsi(net, test_x)
            for module in net.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.momentum = 0.1
            train(net, x[:-TEST_IMAGES], y[:-TEST_IMAGES], epochs, seed)
            found.append((before, mean_nsi(net, test_x), accuracy(net, test_x, test_y)))
        before, after, score = (statistics.mean(column) for column in zip(*found, strict=True))
        per_seed = " ".join(f"{after:.3g}" for _, after, _ in found)
        label = start if not norm else f"involution, {start}"
        rows.append([label, norm, f"{before:.3g}", f"{after:.3g}", per_seed, f"{score:.2f}"])
    return rows


def show(title: str, columns: tuple[str, ...], rows: list[list[str]]) -> None:
    table = Table(title=title)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < 2 else "right")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=12)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ReplaceWarning)  # the table says it
    show(
        "Untrained ResNet-50, eval mode: largest output",
        ("start", "norm inside", "as it is made", "BatchNorm saw 64 images"),
        untrained(),
    )
    show(
        f"Digits, {arguments.seeds} seeds, {arguments.epochs} epochs",
        ("start", "norm inside", "NSI at the start", "NSI trained", "per seed", "accuracy %"),
        trained(arguments.seeds, arguments.epochs),
    )


if __name__ == "__main__":
    main()
