"""Convolution, involution, local attention and per-channel attention in the same small ResNet.

    python examples/operators_study.py                    about three minutes on one core
    python examples/operators_study.py --seeds 5 --epochs 30

The 1797 handwritten digits that scikit-learn carries (8×8 pixels),
1397 to train and 400 to test. Every network is the 20-layer CIFAR ResNet; the 3×3 convolutions of
its stages that keep their width are replaced. The seed fixes data order, split and the shared
initialisation; accuracies are those of the last epoch. This compares behaviour, not the operators'
merit: the images are tiny and the recipe is the convolution's.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

import attnlab
from attnlab.evolution import native_status, replace
from attnlab.networks.backbones.resnet import basic_resnet

OPERATORS: dict[str, dict[str, object]] = {
    "convolution": {},
    "involution": {"kernel_size": 3},
    "local_attention": {"kernel_size": 3, "heads": 4, "positional": "relative"},
    "channel_attention": {"kernel_size": 3},
}
TEST_IMAGES = 400


def digits() -> tuple[Tensor, Tensor]:
    """Images (1797, 1, 8, 8), standardised, and labels, in a fixed random order."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    x = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8)[order]
    return (x - x.mean()) / x.std(), torch.tensor(labels)[order]


def network(operator: str, seed: int) -> nn.Module:
    """The ResNet with `operator` in its stages; what is not replaced starts alike for a seed."""
    torch.manual_seed(seed)
    net = basic_resnet(20, num_classes=10, in_channels=1)
    if operator == "convolution":
        return net

    def in_a_stage(name: str, convolution: nn.Conv2d) -> bool:
        return name.startswith("layer") and convolution.in_channels == convolution.out_channels

    example = torch.zeros(1, 1, 8, 8)
    return replace(net, operator, where=in_a_stage, example=example, **OPERATORS[operator])[0]


def train(net: nn.Module, x: Tensor, y: Tensor, epochs: int, seed: int) -> float:
    """Train in place; seconds of process time per epoch."""
    order = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(
        net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True
    )
    steps = epochs * (len(x) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=steps)
    start = time.process_time()
    net.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(x), generator=order).split(64)[: len(x) // 64]:
            optimizer.zero_grad()
            F.cross_entropy(net(x[batch]), y[batch]).backward()
            optimizer.step()
            schedule.step()
    return (time.process_time() - start) / epochs


def accuracy(net: nn.Module, x: Tensor, y: Tensor) -> float:
    net.eval()
    with torch.no_grad():
        return 100 * float((net(x).argmax(1) == y).float().mean())


def mean_nsi(net: nn.Module, x: Tensor) -> float:
    """Mean over steps and images of the neural stiffness index."""
    steps = attnlab.stiffness(net, [x], progress=False).nsi
    return statistics.mean(step.mean for step in steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=12)
    arguments = parser.parse_args()
    x, y = digits()
    train_x, test_x = x[:-TEST_IMAGES], x[-TEST_IMAGES:]
    train_y, test_y = y[:-TEST_IMAGES], y[-TEST_IMAGES:]
    table = Table(title=f"{arguments.seeds} seeds, {arguments.epochs} epochs, last epoch")
    for column in ("operator", "accuracy %", "per seed", "parameters", "s / epoch", "mean NSI"):
        table.add_column(column, justify="left" if column == "operator" else "right")
    for operator in OPERATORS:
        scores, seconds, indices = [], [], []
        for seed in range(arguments.seeds):
            net = network(operator, seed)
            seconds.append(train(net, train_x, train_y, arguments.epochs, seed))
            scores.append(accuracy(net, test_x, test_y))
            indices.append(mean_nsi(net, test_x))
        table.add_row(
            operator,
            f"{statistics.mean(scores):.2f}",
            " ".join(f"{score:.2f}" for score in scores),
            f"{sum(p.numel() for p in net.parameters()):,}",
            f"{min(seconds):.1f}",
            f"{statistics.mean(indices):.3g}",
        )
    console = Console()
    console.print(table)
    console.print(str(native_status()), soft_wrap=True)


if __name__ == "__main__":
    main()
