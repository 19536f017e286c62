"""ASR on a small vision transformer, as the paper's supplement prints it and otherwise."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
import tyro
from safetensors.torch import save_file
from torch import Tensor, nn

import attnlab
from attnlab.surgery.insertion import attachments
from benchmarks._common import Table, settings, write_json

VARIANTS: dict[str, dict[str, Any]] = settings("stiffness")["vit_variants"]
MEAN, SPREAD = [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]
Result = dict[str, Any]


@dataclass(frozen=True)
class CifarArrays:
    """Images and classes."""

    train: Tensor
    train_classes: Tensor
    test: Tensor
    test_classes: Tensor


def _vit() -> nn.Module:
    return timm.create_model("vit_tiny_patch16_224", **settings("stiffness")["vit"])


def _with(network: nn.Module, variant: str) -> nn.Module:
    """Put the gates of a variant into a network."""
    about = VARIANTS[variant]
    if "gate" not in about:
        return network
    options = {**about.get("options", {}), **dict.fromkeys(about.get("drawn", ()))}
    return attnlab.insert(network, about["gate"], **options)[0]


def _images(part: np.ndarray) -> Tensor:
    values = torch.from_numpy(np.ascontiguousarray(part)).float() / 255
    if values.shape[1] != 3:
        values = values.movedim(3, 1)
    mean, spread = (torch.tensor(each)[:, None, None] for each in (MEAN, SPREAD))
    return ((values - mean) / spread).contiguous()


def _loaded(file: Path, number: int) -> CifarArrays:
    with np.load(file) as archive:
        classes = [torch.from_numpy(archive[name]).long() for name in ("train_y", "test_y")]
        train, test = _images(archive["train_x"][:number]), _images(archive["test_x"])
    return CifarArrays(train, classes[0][:number], test, classes[1])


def _train(network: nn.Module, data: CifarArrays, epochs: int, seed: int, batch: int = 128) -> None:
    """Train with AdamW and a cosine schedule."""
    x, y = data.train, data.train_classes
    optimizer = torch.optim.AdamW(network.parameters(), 1e-3, weight_decay=0.05)
    steps = epochs * (len(x) // batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda n: min((n + 1) / 100, 0.5 * (1 + math.cos(math.pi * n / steps)))
    )
    generator = torch.Generator().manual_seed(seed)
    network.train()
    for _ in range(epochs):
        order = torch.randperm(len(x), generator=generator)
        for start in range(0, len(x) - batch + 1, batch):
            chosen = order[start : start + batch]
            flip = torch.rand(batch, generator=generator) < 0.5
            seen = torch.where(flip[:, None, None, None], x[chosen].flip(3), x[chosen])
            loss = nn.functional.cross_entropy(network(seen), y[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()


@torch.no_grad()
def _accuracy(network: nn.Module, data: CifarArrays) -> float:
    network.eval()
    parts = zip(data.test.split(500), data.test_classes.split(500), strict=True)
    right = sum(int((network(a).argmax(1) == b).sum()) for a, b in parts)
    return 100 * right / len(data.test_classes)


@torch.no_grad()
def _gates(network: nn.Module) -> dict[str, float]:
    """Return the mean |gate|, the share of negative ones, and the largest difference of two hidden
    units of an inner SE."""
    found = [a.gate_module for _, a in attachments(network)]
    constant = [gate for gate in found if hasattr(gate, "constant")]
    if not constant:
        return {}
    values = torch.cat([gate.constant() for gate in constant])
    units = [gate.vectors[0].attention.excitation.fc1.weight for gate in constant]
    apart = max((unit - unit[:1]).abs().max().item() for unit in units)
    negative = (values < 0).double().mean().item()
    return {"mean": values.abs().mean().item(), "negative": negative, "apart": apart}


def _looked_at(network: nn.Module, x: Tensor) -> None:
    """Print the stiffness of the trained plain network by tokens, and its attention maps."""
    batches = x[:256].split(64)
    for tokens in ("all", "class", "patch"):
        for granularity in ("step", "block"):
            found = attnlab.stiffness(network, batches, tokens=tokens, granularity=granularity)
            print(tokens, found, [round(step.mean, 3) for step in found.nsi])
    print(attnlab.maps(network, batches))


def _fixed_batch(x: Tensor, y: Tensor, steps: int = 150) -> Iterator[Result]:
    """Yield whether a network that starts nearly without its branches learns one batch by heart."""
    for name in ("plain", "as printed"):
        for optimizer, rate in (("AdamW", 1e-3), ("SGD", 0.1)):
            torch.manual_seed(0)
            network = _with(_vit(), name)
            update = getattr(torch.optim, optimizer)(network.parameters(), rate)
            losses, slope = [], 0.0
            for step in range(steps + 1):
                loss = nn.functional.cross_entropy(network(x), y)
                update.zero_grad()
                loss.backward()
                if step == 0:
                    last = [m for b in network.blocks for m in (b.attn.proj, b.mlp.fc2)]
                    slope = torch.cat([m.weight.grad.flatten() for m in last]).norm().item()
                update.step()
                losses.append(loss.item())
            shown = [round(losses[n], 4) for n in (0, steps // 3, steps)]
            yield {"variant": name, "optimizer": optimizer, "gradient": slope, "loss": shown}


def _trained(name: str, seed: int, data: CifarArrays, epochs: int, save: Path | None) -> Result:
    """Train one variant; the plain one is also looked at, and gets gates once it is trained."""
    began = time.process_time()
    torch.manual_seed(seed)
    network = _with(_vit(), name)
    start = _gates(network)
    _train(network, data, epochs, seed)
    result: Result = {"variant": name, "seed": seed, "accuracy": _accuracy(network, data)}
    if save is not None and seed == 0:
        save.mkdir(parents=True, exist_ok=True)
        file = f"{name.replace(', ', '-').replace(' ', '-')}.safetensors"
        save_file(network.state_dict(), save / file)
    result |= {"start": start, "end": _gates(network), "cpu": time.process_time() - began}
    result["inserted"] = {}
    if name == "plain":
        _looked_at(network, data.test)
        others = [other for other in VARIANTS if other != "plain"]
        result["inserted"] = {o: _accuracy(_with(network, o), data) for o in others}
    return result


def vit_asr(
    archive: tyro.conf.Positional[Path],
    seeds: int = 1,
    epochs: int = 8,
    images: int = 8000,
    steps: int = 150,
    variants: tuple[str, ...] = tuple(VARIANTS),
    save: Path | None = None,
    json: Path = Path("out/stiffness-vit-asr.json"),
) -> None:
    """Train a small ViT with variants of ASR on CIFAR-10.

    Prints for each variant the test accuracy of the last epoch, how large the gates ended, and how
    far the hidden units of the inner SE are from one another; and what a trained plain network is
    worth the moment that gates are put into it, with its stiffness by tokens and its attention maps
    on 256 test images. Before that, on one batch of 32: the gradient of the branches' last layers
    at the start, and the loss with AdamW 1e-3 and SGD 0.1.

    Args:
        archive: has train_x, train_y, test_x and test_y.
        seeds: trainings of each variant.
        epochs: of a training, batch 128, AdamW 1e-3 with weight decay .05, cosine.
        images: of training.
        steps: on the one batch.
        variants: which.
        save: a folder for the networks of the first seed.
        json: where the numbers are written.
    """
    data = _loaded(archive, images)
    batch = list(_fixed_batch(data.train[:32], data.train_classes[:32], steps))
    rows = [[b["variant"], b["optimizer"], f"{b['gradient']:.2e}", str(b["loss"])] for b in batch]
    columns = ["variant", "optimizer", "gradient at the start", "loss"]
    Table("One batch of 32", columns, rows).print()
    found = []
    for seed in range(seeds):
        for name in variants:
            found.append(_trained(name, seed, data, epochs, save))
            write_json(json, {"batch": batch, "found": found})

    def shown(values: dict[str, float]) -> str:
        return ", ".join(f"{key} {value:.3g}" for key, value in values.items()) or "–"

    rows = [
        [
            *(f["variant"], str(f["seed"]), f"{f['accuracy']:.2f}"),
            *(shown(f[when]) for when in ("start", "end", "inserted")),
        ]
        for f in found
    ]
    columns = ["variant", "seed", "accuracy", "gates at the start", "at the end", "inserted after"]
    Table(f"ViT, {epochs} epochs", columns, rows).print()
