"""The training loop against others, and what watching costs it."""

from __future__ import annotations

import logging
import statistics
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

import attnlab
from attnlab.bridges.probe import EVERY, StiffnessProbe, StripeProbe
from attnlab.data import Facts, load_data
from attnlab.data.batches import training_chunks
from attnlab.lab.training import RunConfig
from attnlab.lab.training.loop import train_epoch
from attnlab.lab.training.reporters import CallReporter
from attnlab.lab.training.state import build_state
from attnlab.subject.building import build_network
from attnlab.tasks import Task, build_task
from benchmarks._common import Table, interleave, timed, write_json
from benchmarks.speed.memory import sgd_step

BATCH = 128
SIZE = (3, 32, 32)
PEERS = ("bare", "trainer")
Epoch = Callable[[], tuple[float, float]]
"""Trains one epoch; its seconds and those of them spent on data."""


def _config(network: str, steps: int) -> RunConfig:
    """Describe a run of `steps` whole batches of noise."""
    data = {"name": "fake", "train_subset": BATCH * steps, "test_subset": 10}
    recipe = {"epochs": 1000, "batch_size": BATCH, "lr": 0.01, "weight_decay": 1e-4}
    return RunConfig(data=data, backbone=network, recipe=recipe)  # type: ignore[arg-type]


def _task(config: RunConfig) -> Task:
    facts = Facts("fake", "class", 10, SIZE, 1, 1, (0.0,) * 3, (1.0,) * 3, "")
    return build_task(config.task, facts)


def _network(config: RunConfig) -> nn.Module:
    return build_network(config, _task(config))


def _ours(config: RunConfig) -> Epoch:
    """attnlab's loop, with augmentation."""
    fabric = Fabric(accelerator="cpu", devices=1)
    data, task = load_data(config.data), _task(config)
    state = build_state(fabric, config, build_network(config, task))
    show = CallReporter(lambda _: None)
    epochs = iter(range(config.recipe.epochs))

    def run() -> tuple[float, float]:
        record = train_epoch(fabric, config, state, task, data, next(epochs), show)
        return record.seconds, record.waited

    return run


def _ready_batches(config: RunConfig) -> list[tuple[Tensor, Tensor]]:
    """Make one epoch's batches beforehand."""
    data = load_data(config.data)
    chunks = training_chunks(data.order(0, 0), config.recipe)
    return [tuple(batch) for batch in data.training(chunks, 0, 0, torch.device("cpu"))]


def _fused_sgd(config: RunConfig, network: nn.Module) -> torch.optim.Optimizer:
    """Build the optimizer that attnlab's loop builds."""
    recipe = config.recipe
    decay = recipe.weight_decay
    return torch.optim.SGD(
        network.parameters(), recipe.lr, momentum=recipe.momentum, weight_decay=decay, fused=True
    )


def _bare(config: RunConfig) -> Epoch:
    """The least that trains."""
    network = _network(config).train()
    optimizer, batches = _fused_sgd(config, network), _ready_batches(config)

    def run() -> None:
        for images, labels in batches:
            sgd_step(network, optimizer, images, labels)

    seconds = timed(run)
    return lambda: (seconds(), 0.0)


def _trainer(config: RunConfig) -> Epoch:
    """Lightning's Trainer with everything switched off that can be; its set-up is not counted."""
    import pytorch_lightning as lightning

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="pytorch_lightning")

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = _network(config)

        def training_step(self, batch: Any, _: int) -> Tensor:
            images, labels = batch
            return F.cross_entropy(self.network(images), labels)

        def configure_optimizers(self) -> Any:
            return _fused_sgd(config, self)

    class Clock(lightning.Callback):
        began = seconds = 0.0

        def on_train_epoch_start(self, *_: Any) -> None:
            self.began = time.perf_counter()

        def on_train_epoch_end(self, *_: Any) -> None:
            self.seconds = time.perf_counter() - self.began

    module, clock = Module(), Clock()
    batches = DataLoader(_ready_batches(config), batch_size=None)  # type: ignore[arg-type]
    off = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )

    def run() -> tuple[float, float]:
        one = {"accelerator": "cpu", "devices": 1, "max_epochs": 1, "callbacks": [clock]}
        lightning.Trainer(**one, **off).fit(module, batches)
        return clock.seconds, 0.0

    return run


def _median_ratio(theirs: list[tuple[float, float]], mine: list[tuple[float, float]]) -> float:
    """Return how many times faster than theirs mine is, block by block."""
    return statistics.median(t[0] / m[0] for t, m in zip(theirs, mine, strict=True))


def _trained(network: str, blocks: int, steps: int) -> dict[str, Any]:
    """Time all loops on one network."""
    config = _config(network, steps)
    contestants = {"ours": _ours(config), "bare": _bare(config), "bare again": _bare(config)}
    if find_spec("pytorch_lightning") is not None:
        contestants["trainer"] = _trainer(config)
    times = interleave(contestants, blocks)
    speed = {n: BATCH * steps / statistics.median(t for t, _ in times[n]) for n in times}
    return {
        "images_per_second": speed,
        "ratio": {n: _median_ratio(times[n], times["ours"]) for n in PEERS if n in times},
        "bare_over_itself": _median_ratio(times["bare"], times["bare again"]),
        "data_share": sum(d for _, d in times["ours"]) / sum(t for t, _ in times["ours"]),
    }


def train(
    networks: tuple[str, ...] = ("resnet20", "resnet164"),
    blocks: int = 30,
    steps: int = 2,
    json: Path = Path("out/speed-train.json"),
) -> None:
    """Time the training loop against a bare torch loop and, if installed, Lightning's Trainer.

    All train the same network with the same fused SGD on batches of 128 images of 32×32. The bare
    loop and the Trainer are given batches that are ready: normalised, in memory, not augmented.
    Ours also augments, checks every loss and counts what is right. A ratio above 1 means that ours
    is faster. "bare again" is the bare loop against a second copy of itself: what this machine
    cannot tell apart. About half an hour.

    Args:
        networks: names for attnlab.create.
        blocks: epochs per contestant.
        steps: batches per epoch.
        json: where the numbers are written.
    """
    results = {network: _trained(network, blocks, steps) for network in networks}

    def cell(values: dict[str, float], name: str, digits: int) -> str:
        return f"{values[name]:.{digits}f}" if name in values else "–"

    rows = [
        [
            network,
            *(cell(found["images_per_second"], name, 1) for name in ("ours", *PEERS)),
            *(cell(found["ratio"], name, 3) for name in PEERS),
            f"{found['bare_over_itself']:.3f}",
            f"{100 * found['data_share']:.2f} %",
        ]
        for network, found in results.items()
    ]
    columns = ["network", "ours img/s", "bare", "Trainer", "ours / bare", "ours / Trainer"]
    Table("Training, batch 128 of 32×32", [*columns, "bare again", "data"], rows).print()
    if find_spec("pytorch_lightning") is None:
        print("pytorch-lightning is not installed, so its Trainer was left out.")
    write_json(json, {"batch": BATCH, "steps": steps, "blocks": blocks, "networks": results})


def callbacks(
    networks: tuple[str, ...] = ("resnet20", "resnet56"),
    rounds: int = 7,
    batch: int = BATCH,
    json: Path = Path("out/speed-callbacks.json"),
) -> None:
    """Time one measurement of 32 images of a training against one step of a batch.

    Args:
        networks: names for attnlab.create; they get SE.
        rounds: how often both are timed.
        batch: images of a step.
        json: where the numbers are written.
    """
    found = []
    for name in networks:
        torch.manual_seed(0)
        model, _ = attnlab.insert(attnlab.create(name), "se")
        images, labels = torch.randn(batch, *SIZE), torch.arange(batch) % 10
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for kind in (StiffnessProbe, StripeProbe):
            probe, numbers = kind(images[:32], 1), iter(range(rounds + 1))
            contestants = {
                "step": lambda m=model, o=optimizer, x=images, y=labels: sgd_step(
                    m.train(), o, x, y
                ),
                "probe": lambda p=probe, n=numbers, m=model: p.at(m, next(n)),
            }
            times = interleave({key: timed(run) for key, run in contestants.items()}, rounds)
            pairs = zip(times["probe"], times["step"], strict=True)
            cost = statistics.median(measured / step for measured, step in pairs)
            found.append({"network": name, "probe": kind.__name__, "steps": cost})
    rows = [
        [f["network"], f["probe"], f"{f['steps']:.2f}", f"{f['steps'] / EVERY:.2%}"] for f in found
    ]
    columns = ["network", "probe", "steps that one takes", f"share at one in {EVERY}"]
    Table("What watching costs a training", columns, rows).print()
    write_json(json, {"found": found})
