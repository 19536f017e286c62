"""The training loop against a bare torch loop and, when installed, Lightning's Trainer.

    python benchmarks/train.py                       ResNet20 and ResNet164, about half an hour
    python benchmarks/train.py --networks resnet20 --blocks 3 --steps 2
    pip install pytorch-lightning==2.6.6             adds the Trainer to the table

All train the same network with the same fused SGD on batches of 128 images of 32×32. The bare loop
and the Trainer are given batches that are ready: normalised, in memory, not augmented. Ours also
augments, checks every loss and counts what is right. A ratio above 1 means that ours is faster;
contestants take turns in one process, and ratios are medians over blocks. "bare again" is the bare
loop against a second copy of itself: what this machine cannot tell apart.
"""

from __future__ import annotations

import logging
import random
import statistics
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.nn.functional as F
import tyro
from _measure import print_table, write_json
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.utils.data import DataLoader

from attnlab.data import Facts, load_data
from attnlab.data.batches import training_chunks
from attnlab.lab.training import RunConfig
from attnlab.lab.training.loop import train_epoch
from attnlab.lab.training.reporters import Calls
from attnlab.lab.training.state import build_state
from attnlab.subject.building import build_network
from attnlab.tasks import Task, build_task

BATCH = 128
PEERS = ("bare", "trainer")
Epoch = Callable[[], tuple[float, float]]
"""Trains one epoch; its seconds and those of them spent on data."""


def settings(network: str, steps: int) -> RunConfig:
    """A run of `steps` whole batches of noise."""
    data = {"name": "fake", "train_subset": BATCH * steps, "test_subset": 10}
    recipe = {"epochs": 1000, "batch_size": BATCH, "lr": 0.01, "weight_decay": 1e-4}
    return RunConfig(data=data, backbone=network, recipe=recipe)  # type: ignore[arg-type]


def task_of(config: RunConfig) -> Task:
    facts = Facts("fake", "class", 10, (3, 32, 32), 1, 1, (0.0,) * 3, (1.0,) * 3, "")
    return build_task(config.task, facts)


def ours(config: RunConfig) -> Epoch:
    """attnlab's loop, with augmentation."""
    fabric = Fabric(accelerator="cpu", devices=1)
    data, task = load_data(config.data), task_of(config)
    state = build_state(fabric, config, build_network(config, task, (3, 32, 32)))
    show = Calls(lambda _: None)
    epochs = iter(range(config.recipe.epochs))

    def run() -> tuple[float, float]:
        record = train_epoch(fabric, config, state, task, data, next(epochs), show)
        return record["train_seconds"], record["data_seconds"]

    return run


def ready_batches(config: RunConfig) -> list[tuple[Tensor, Tensor]]:
    """One epoch's batches, made beforehand."""
    data = load_data(config.data)
    chunks = training_chunks(data.facts.train, config.recipe, 0, 0)
    return [tuple(batch) for batch in data.training(chunks, 0, 0, torch.device("cpu"))]


def fused_sgd(config: RunConfig, network: nn.Module) -> torch.optim.Optimizer:
    """The optimizer that attnlab's loop builds."""
    recipe = config.recipe
    return torch.optim.SGD(
        network.parameters(),
        recipe.lr,
        momentum=recipe.momentum,
        weight_decay=recipe.weight_decay,
        fused=True,
    )


def bare(config: RunConfig) -> Epoch:
    """The least that trains."""
    network = build_network(config, task_of(config), (3, 32, 32)).train()
    optimizer = fused_sgd(config, network)
    batches = ready_batches(config)

    def run() -> tuple[float, float]:
        began = perf_counter()
        for images, labels in batches:
            optimizer.zero_grad()
            F.cross_entropy(network(images), labels).backward()
            optimizer.step()
        return perf_counter() - began, 0.0

    return run


def trainer(config: RunConfig) -> Epoch:
    """Lightning's Trainer with everything switched off that can be; its set-up is not counted."""
    import pytorch_lightning as lightning

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="pytorch_lightning")

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = build_network(config, task_of(config), (3, 32, 32))

        def training_step(self, batch: Any, _: int) -> Tensor:
            images, labels = batch
            return F.cross_entropy(self.network(images), labels)

        def configure_optimizers(self) -> Any:
            return fused_sgd(config, self)

    class Clock(lightning.Callback):
        began = seconds = 0.0

        def on_train_epoch_start(self, *_: Any) -> None:
            self.began = perf_counter()

        def on_train_epoch_end(self, *_: Any) -> None:
            self.seconds = perf_counter() - self.began

    module, clock = Module(), Clock()
    batches = DataLoader(ready_batches(config), batch_size=None)  # type: ignore[arg-type]

    def run() -> tuple[float, float]:
        lightning.Trainer(
            accelerator="cpu",
            devices=1,
            max_epochs=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[clock],
        ).fit(module, batches)
        return clock.seconds, 0.0

    return run


def measured(contestants: dict[str, Epoch], blocks: int) -> dict[str, list[tuple[float, float]]]:
    """Each contestant's blocks; they take turns in an order that changes at random."""
    names = list(contestants)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for name in names:
        contestants[name]()  # the first epoch allocates
    order = random.Random(0)
    for _ in range(blocks):
        for name in order.sample(names, len(names)):
            times[name].append(contestants[name]())
    return times


def median_ratio(theirs: list[tuple[float, float]], mine: list[tuple[float, float]]) -> float:
    """How many times faster than theirs mine is, block by block."""
    return statistics.median(t[0] / m[0] for t, m in zip(theirs, mine, strict=True))


def main(
    networks: tuple[str, ...] = ("resnet20", "resnet164"),
    blocks: int = 30,
    steps: int = 2,
    output: Path = Path("out/train.json"),
) -> None:
    """Measure and print.

    Args:
        networks: names for attnlab.create.
        blocks: epochs per contestant.
        steps: batches per epoch.
        output: where the numbers are written.
    """
    installed = find_spec("pytorch_lightning") is not None
    rows, results = [], {}
    for network in networks:
        config = settings(network, steps)
        contestants = {"ours": ours(config), "bare": bare(config), "bare again": bare(config)}
        if installed:
            contestants["trainer"] = trainer(config)
        times = measured(contestants, blocks)
        images = BATCH * steps
        seconds = {name: statistics.median(t for t, _ in times[name]) for name in times}
        ratios = {name: median_ratio(times[name], times["ours"]) for name in times if name in PEERS}
        floor = median_ratio(times["bare"], times["bare again"])
        share = sum(waited for _, waited in times["ours"]) / sum(t for t, _ in times["ours"])
        rows.append(
            (
                network,
                *(
                    f"{images / seconds[name]:.1f}" if name in seconds else "–"
                    for name in ("ours", *PEERS)
                ),
                *(f"{ratios[name]:.3f}" if name in ratios else "–" for name in PEERS),
                f"{floor:.3f}",
                f"{100 * share:.2f} %",
            )
        )
        results[network] = {
            "images_per_second": {name: images / value for name, value in seconds.items()},
            "ratio": ratios,
            "bare_over_itself": floor,
            "data_share": share,
        }
    columns = (
        "network",
        "ours img/s",
        "bare",
        "Trainer",
        "ours / bare",
        "ours / Trainer",
        "bare again",
        "data",
    )
    print_table("Training, batch 128 of 32×32", columns, rows)
    if not installed:
        print("pytorch-lightning is not installed, so its Trainer was left out.")
    write_json(output, {"batch": BATCH, "steps": steps, "blocks": blocks, "networks": results})
    print(f"Written to {output}.")


if __name__ == "__main__":
    tyro.cli(main)
