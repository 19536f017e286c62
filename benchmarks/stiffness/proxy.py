"""Does stiffness rank networks by accuracy, trained or untrained?"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import attnlab
from attnlab.data.embedded import digits
from benchmarks._common import Table, ratio_text, settings, write_json
from benchmarks.stiffness.family import NAMES, build
from benchmarks.stiffness.statistics import rank_correlations, with_interval

SETTINGS = settings("stiffness")["proxy"]
MEASURES = ("TNS", "mean NSI", "gradient norm")
Labelled = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class TrainedRun:
    """A network before and after training."""

    network: str
    seed: int
    parameters: int
    accuracy: float
    """Per cent."""
    untrained: dict[str, float]
    trained: dict[str, float]


def _images() -> tuple[Labelled, Labelled]:
    """Return training and test images with their classes."""
    train, test, _ = digits()
    first, second = (
        ((part.images.float().div(255) - 0.3) / 0.37, part.targets.long()) for part in (train, test)
    )
    return first, second


def _train(network: nn.Module, data: Labelled, seed: int, epochs: int) -> None:
    """Train by SGD with momentum, one cycle."""
    inputs, labels = data
    batch, rate = SETTINGS["batch"], SETTINGS["rate"]
    order = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(network.parameters(), rate, momentum=0.9, weight_decay=5e-4)
    steps = epochs * -(-len(labels) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    network.train()
    for _ in range(epochs):
        for chosen in torch.randperm(len(labels), generator=order).split(batch):
            optimizer.zero_grad()
            F.cross_entropy(network(inputs[chosen]), labels[chosen]).backward()
            optimizer.step()
            schedule.step()
    network.eval()


def _measured(network: nn.Module, data: Labelled) -> dict[str, float]:
    """Measure on the first training images, in eval mode except for the gradient."""
    inputs, labels = (part[: SETTINGS["images"]] for part in data)
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


@torch.no_grad()
def _accuracy(network: nn.Module, data: Labelled) -> float:
    return 100 * (network.eval()(data[0]).argmax(1) == data[1]).float().mean().item()


def _run(name: str, seed: int, train: Labelled, test: Labelled, epochs: int) -> TrainedRun:
    torch.manual_seed(seed)
    network = build(name)
    untrained = _measured(network, train)
    _train(network, train, seed, epochs)
    parameters = sum(p.numel() for p in network.parameters())
    accuracy = _accuracy(network, test)
    return TrainedRun(name, seed, parameters, accuracy, untrained, _measured(network, train))


def _columns(runs: list[TrainedRun]) -> dict[str, np.ndarray]:
    """Return every measure and the accuracy by network, means over seeds."""
    names = list(dict.fromkeys(run.network for run in runs))
    rows = [[run for run in runs if run.network == name] for name in names]
    table = {
        "accuracy": np.array([np.mean([run.accuracy for run in row]) for row in rows]),
        "parameters": np.array([np.mean([run.parameters for run in row]) for row in rows]),
    }
    for measure in MEASURES:
        before = [np.mean([run.untrained[measure] for run in row]) for row in rows]
        table[f"{measure}, untrained"] = np.array(before)
    for measure in MEASURES:
        after = [np.mean([run.trained[measure] for run in row]) for row in rows]
        table[f"{measure}, trained"] = np.array(after)
    return table


def _correlations(table: dict[str, np.ndarray]) -> dict[str, list[float]]:
    """Return Spearman with accuracy, low and high of its interval over networks."""
    accuracy = table["accuracy"]
    number = len(accuracy)
    chosen = np.random.default_rng(0).integers(0, number, (SETTINGS["draws"], number))
    found = {}
    for name, values in table.items():
        if name != "accuracy":
            (middle,) = rank_correlations(values[None], accuracy[None])
            drawn = rank_correlations(values[chosen], accuracy[chosen])
            found[name] = with_interval(middle, drawn)
    return found


def _seeds_agree(runs: list[TrainedRun]) -> float | None:
    """Return the mean Spearman of the accuracies of two seeds: what a perfect measure could reach.

    Of one seed that is not known.
    """
    seeds = sorted({run.seed for run in runs})
    by_seed = [[run.accuracy for run in runs if run.seed == seed] for seed in seeds]
    pairs = [(a, b) for i, a in enumerate(by_seed) for b in by_seed[i + 1 :]]
    if not pairs:
        return None
    one, other = (np.array(each) for each in zip(*pairs, strict=True))
    return float(rank_correlations(one, other).mean())


def proxy(
    networks: tuple[str, ...] = tuple(NAMES),
    seeds: int = 3,
    epochs: int = SETTINGS["epochs"],
    json: Path = Path("out/stiffness-proxy.json"),
) -> None:
    """Correlate stiffness with the test accuracy of fifteen networks of one depth and size.

    They are trained on scikit-learn's digits. For each measure: Spearman's rank correlation with
    the accuracy over the networks (means over seeds), with a 95 % bootstrap interval over networks.
    A few minutes on one core.

    Args:
        networks: which of the family.
        seeds: trainings of each.
        epochs: of a training.
        json: where the numbers are written.
    """
    train_data, test_data = _images()
    runs = [
        _run(name, seed, train_data, test_data, epochs)
        for name in networks
        for seed in range(seeds)
    ]
    table = _columns(runs)
    found, agree = _correlations(table), _seeds_agree(runs)
    (low, high), (small, large) = (
        (table[name].min(), table[name].max()) for name in ("accuracy", "parameters")
    )
    title = f"{len(networks)} networks, {seeds} seeds, accuracy {low:.1f} to {high:.1f} %, "
    title += f"parameters {small:,.0f} to {large:,.0f}"
    rows = [[name, ratio_text(*values)] for name, values in found.items()]
    rows.append(["accuracies of two seeds", "–" if agree is None else f"{agree:.2f}"])
    Table(title, ["measure", "Spearman with accuracy"], rows).print()
    content = {"spearman": found, "between_seeds": agree, "runs": [asdict(run) for run in runs]}
    write_json(json, content)
