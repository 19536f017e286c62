"""The kernels that convolution, involution and attention really use, at three pixels of one digit.

Three small networks that differ in one operator are trained on digits for half a minute; then each
operator's kernel is written out by the Evolution formula.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab import evolution
from attnlab.data import DataConfig, load_data
from attnlab.page.plot import RED, Spec
from attnlab.page.raster import raster_figure

CHANNELS, KERNEL, SIDE = 32, 7, 16
PIXELS = [(4, 7), (8, 4), (12, 9)]
OPERATORS: dict[str, Callable[[], nn.Module]] = {
    "convolution": lambda: nn.Conv2d(CHANNELS, CHANNELS, KERNEL, padding=KERNEL // 2, bias=False),
    "involution": lambda: evolution.Involution2d(CHANNELS, KERNEL, groups=2),
    "attention": lambda: evolution.LocalAttention2d(
        CHANNELS, CHANNELS, KERNEL, heads=2, positional="relative"
    ),
}


def pictures() -> dict[str, Spec]:
    images, labels, test, test_labels = digits()
    panels: list[Spec] = []
    for name, build in OPERATORS.items():
        network = trained(build, images, labels)
        accuracy = (network(test).argmax(1) == test_labels).float().mean().item()
        panels += kernel_row(name, network, test[:1])
        print(f"  kernels: {name}, {100 * accuracy:.1f} % of the test digits")
    return {
        "kernels": {
            "title": {
                "text": "The kernel at three pixels of one digit",
                "subtitle": "One input and one output channel; one colour scale per operator.",
            },
            "hconcat": [digit_figure(test[0, 0]), {"concat": panels, "columns": len(PIXELS)}],
        }
    }


def digit_figure(image: Tensor) -> Spec:
    """The digit, with the three pixels framed."""
    spec = _panel(image.numpy(), "the digit", "the digit, three pixels framed", (150, 150))
    places = [{"column": column + 0.5, "row": row + 0.5} for row, column in PIXELS]
    frames = {
        "data": {"values": places},
        "mark": {"type": "square", "size": 90, "filled": False, "stroke": RED, "strokeWidth": 2},
        "encoding": {
            "x": {"field": "column", "type": "quantitative"},
            "y": {"field": "row", "type": "quantitative"},
        },
    }
    return {**spec, "layer": [*spec["layer"], frames]}


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training and test digits, enlarged to 16 × 16, one channel."""
    data = load_data(DataConfig(name="digits", size=SIDE))
    everything = data.testing([torch.arange(data.facts.test)], torch.device("cpu"))
    test, test_labels = next(iter(everything))
    train, train_labels = data._train.images, data._train.targets  # type: ignore[attr-defined]
    mean, std = data.facts.mean[0], data.facts.std[0]
    return (train[:, :1].float() / 255 - mean) / std, train_labels, test[:, :1], test_labels


def trained(build: Callable[[], nn.Module], images: Tensor, labels: Tensor) -> nn.Sequential:
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, CHANNELS, 3, padding=1, bias=False),
        nn.BatchNorm2d(CHANNELS),
        nn.ReLU(),
        build(),
        nn.BatchNorm2d(CHANNELS),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(16 * CHANNELS, 10),
    )
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3)
    for _ in range(4):
        for chunk in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            F.cross_entropy(network(images[chunk]), labels[chunk]).backward()
            optimizer.step()
    return network.eval()


@torch.no_grad()
def kernel_row(name: str, network: nn.Sequential, image: Tensor) -> list[Spec]:
    operator = evolution.as_evolution(network[3])
    features = network[:3](image)
    kernel = operator.kernel(features)  # (1, H or 1, W or 1, K, K, D_in/G, D_out)
    kernel = kernel.expand(1, SIDE, SIDE, *kernel.shape[3:])[0, ..., 0, 0]
    shown = [kernel[place].numpy() for place in PIXELS]
    limits = float(min(map(np.min, shown))), float(max(map(np.max, shown)))
    return [
        _panel(
            values,
            f"{name} at {place}",
            f"{name}: kernel of input channel 0 and output channel 0 at pixel {place}",
            (110, 110),
            limits,
        )
        for values, place in zip(shown, PIXELS, strict=True)
    ]


def _panel(
    values: np.ndarray,
    title: str,
    text: str,
    size: tuple[int, int],
    limits: tuple[float | None, float | None] = (None, None),
) -> Spec:
    """A grid of values without axis titles and legend."""
    height, width = values.shape
    spec = raster_figure(
        values,
        description=text,
        x=("", 0, width),
        y=("", 0, height),
        legend="",
        low=limits[0],
        high=limits[1],
        title=title,
        size=size,
    )
    spec["layer"][1]["encoding"]["color"]["legend"] = None
    return spec
