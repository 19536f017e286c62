"""Does stiffness rank networks by accuracy, trained or untrained?

    python benchmarks/stiffness_proxy.py --json benchmarks/stiffness_proxy.json

Fifteen networks of one depth and about one number of parameters (`stiffness_family.py`), three
seeds each, trained on scikit-learn's digits. For each measure: Spearman's rank correlation with the
test accuracy over the networks (means over seeds), with a 95 % bootstrap interval over networks. A
few minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parent))
from shorten import rank_correlations
from stiffness_family import NAMES, build

import attnlab
from attnlab.data.digits import digits

EPOCHS, BATCH, RATE = 3, 64, 0.05
MEASURED = 256
DRAWS = 5000
MEASURES = ("TNS", "mean NSI", "gradient norm")


def images() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Training and test images with their classes."""
    parts = []
    train, test, _ = digits()
    for part in (train, test):
        pixels = part.images.float().div(255)
        parts.append(((pixels - 0.3) / 0.37, part.targets.long()))
    return parts[0], parts[1]


def train(network: nn.Module, data: tuple[Tensor, Tensor], seed: int) -> None:
    """SGD with momentum, one cycle."""
    inputs, labels = data
    order = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(network.parameters(), RATE, momentum=0.9, weight_decay=5e-4)
    steps = EPOCHS * -(-len(labels) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    network.train()
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(labels), generator=order).split(BATCH):
            optimizer.zero_grad()
            F.cross_entropy(network(inputs[chosen]), labels[chosen]).backward()
            optimizer.step()
            schedule.step()
    network.eval()


def measured(network: nn.Module, data: tuple[Tensor, Tensor]) -> dict[str, float]:
    """On the first training images, in eval mode but for the gradient."""
    inputs, labels = data[0][:MEASURED], data[1][:MEASURED]
    result = attnlab.stiffness(network.eval(), [inputs])
    network.train()  # BatchNorm's statistics of an untrained network are those of no data
    network.zero_grad()
    state = {name: buffer.clone() for name, buffer in network.named_buffers()}
    F.cross_entropy(network(inputs), labels).backward()
    network.load_state_dict(state, strict=False)
    size = torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])
    network.zero_grad()
    kept = [step.mean for step in result.nsi if step.kept]
    values = (result.tns, float(np.mean(kept)), float(size.norm()))
    return dict(zip(MEASURES, values, strict=True))


def accuracy(network: nn.Module, data: tuple[Tensor, Tensor]) -> float:
    """Per cent."""
    with torch.no_grad():
        hits = network.eval()(data[0]).argmax(1) == data[1]
    return 100 * hits.float().mean().item()


def one_run(name: str, seed: int, train_data: Any, test_data: Any) -> dict[str, Any]:
    """A network before and after training."""
    torch.manual_seed(seed)
    network = build(name)
    untrained = measured(network, train_data)
    train(network, train_data, seed)
    return {
        "network": name,
        "seed": seed,
        "parameters": sum(p.numel() for p in network.parameters()),
        "accuracy": accuracy(network, test_data),
        "untrained": untrained,
        "trained": measured(network, train_data),
    }


def columns(runs: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Every measure and the accuracy by network, means over seeds."""

    def means(value: Any) -> np.ndarray:
        return np.array([np.mean([value(r) for r in runs if r["network"] == n]) for n in NAMES])

    table = {"accuracy": means(lambda r: r["accuracy"])}
    table["parameters"] = means(lambda r: r["parameters"])
    for when in ("untrained", "trained"):
        for measure in MEASURES:
            table[f"{measure}, {when}"] = means(lambda r, w=when, m=measure: r[w][m])
    return table


def correlations(table: dict[str, np.ndarray]) -> dict[str, list[float]]:
    """Spearman with accuracy, low and high of its interval."""
    random = np.random.default_rng(0)
    chosen = random.integers(0, len(NAMES), (DRAWS, len(NAMES)))
    found = {}
    for name, values in table.items():
        if name == "accuracy":
            continue
        drawn = rank_correlations(values[chosen], table["accuracy"][chosen])
        low, high = np.quantile(drawn, (0.025, 0.975))
        (middle,) = rank_correlations(values[None], table["accuracy"][None])
        found[name] = [float(middle), float(low), float(high)]
    return found


def seeds_agree(runs: list[dict[str, Any]]) -> float:
    """Mean Spearman of the accuracies of two seeds: what a perfect measure could reach."""
    by_seed = [
        [r["accuracy"] for n in NAMES for r in runs if (r["network"], r["seed"]) == (n, seed)]
        for seed in sorted({r["seed"] for r in runs})
    ]
    pairs = [(a, b) for i, a in enumerate(by_seed) for b in by_seed[i + 1 :]]
    one, other = (np.array(each) for each in zip(*pairs, strict=True))
    return float(rank_correlations(one, other).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=Path("stiffness_proxy.json"))
    given = parser.parse_args()
    train_data, test_data = images()
    runs = []
    for name in NAMES:
        for seed in range(given.seeds):
            runs.append(one_run(name, seed, train_data, test_data))
            last = runs[-1]
            print(f"{name} seed {seed}: {last['accuracy']:.2f} %", flush=True)
    table = columns(runs)
    found = correlations(table)
    agree = seeds_agree(runs)
    content = {"spearman": found, "between_seeds": agree, "runs": runs}
    given.json.write_text(json.dumps(content, indent=1) + "\n")
    low, high = table["accuracy"].min(), table["accuracy"].max()
    print(f"\n{len(NAMES)} networks, {given.seeds} seeds, accuracy {low:.1f} to {high:.1f} %")
    sizes = table["parameters"]
    print(f"parameters {sizes.min():,.0f} to {sizes.max():,.0f}")
    print("| measure | Spearman with accuracy | 95 % interval |\n|---|---|---|")
    for name, (middle, left, right) in found.items():
        print(f"| {name} | {middle:+.2f} | [{left:+.2f}, {right:+.2f}] |")
    print(f"accuracies of two seeds: {agree:+.2f}")


if __name__ == "__main__":
    main()
