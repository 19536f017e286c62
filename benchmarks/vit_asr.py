"""ASR on a small vision transformer, as the paper's supplement prints it and otherwise.

    python benchmarks/vit_asr.py cifar10-small.npz --seeds 2 --save vit

The archive has train_x, train_y, test_x and test_y (8,000 training images are used). ViT of width
96, 6 blocks, patches of 8; AdamW 1e-3 with weight decay .05, cosine, batch 128, 8 epochs. Says for
each variant the test accuracy of the last epoch, how large the gates ended, and how far the hidden
units of the inner SE are from one another; and what a trained plain network is worth the moment
that gates are put into it, with its stiffness by tokens and its attention maps on 256 test images.
Before that, on one batch of 32: the gradient of the branches' last
layers at the start, and the loss with AdamW 1e-3 and SGD 0.1.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import attnlab
from attnlab.instruments.maps import attention_maps
from attnlab.surgery.insertion import attachments

VARIANTS: dict[str, tuple[str | None, dict[str, object]]] = {
    "plain": (None, {}),
    "as printed": ("asr:se", {}),
    "as printed, spread": ("asr:se", {"layer_spread": 0.5}),
    "random layers": ("asr:se", {"layer_initial": None}),
    "sigmoid": ("asr:se", {"activation": "sigmoid", "initial": 0.1, "layer_initial": None}),
    "se": ("se", {}),
}


def vit() -> nn.Module:
    """No dropout, so that a run is its seed."""
    return timm.create_model(
        "vit_tiny_patch16_224",
        img_size=32,
        patch_size=8,
        embed_dim=96,
        depth=6,
        num_heads=3,
        num_classes=10,
    )


def images(part: np.ndarray) -> Tensor:
    values = torch.from_numpy(np.ascontiguousarray(part)).float() / 255
    if values.shape[1] != 3:
        values = values.movedim(3, 1)
    mean, spread = torch.tensor([0.4914, 0.4822, 0.4465]), torch.tensor([0.2470, 0.2435, 0.2616])
    return ((values - mean[:, None, None]) / spread[:, None, None]).contiguous()


def train(
    network: nn.Module, x: Tensor, y: Tensor, epochs: int, seed: int, batch: int = 128
) -> None:
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
def accuracy(network: nn.Module, x: Tensor, y: Tensor) -> float:
    network.eval()
    right = sum(
        int((network(a).argmax(1) == b).sum())
        for a, b in zip(x.split(500), y.split(500), strict=True)
    )
    return 100 * right / len(y)


@torch.no_grad()
def gates(network: nn.Module) -> dict[str, float]:
    """Mean |gate|, the share of negative ones, and the largest difference of two hidden units."""
    found = [a.gate_module for _, a in attachments(network)]
    constant = [gate for gate in found if hasattr(gate, "constant")]
    if not constant:
        return {}
    values = torch.cat([gate.constant() for gate in constant])
    units = [gate.vectors[0].attention.excitation.fc1.weight for gate in constant]
    apart = max((unit - unit[:1]).abs().max().item() for unit in units)
    return {
        "mean": values.abs().mean().item(),
        "negative": (values < 0).double().mean().item(),
        "apart": apart,
    }


def looked_at(network: nn.Module, x: Tensor) -> None:
    """The stiffness of the trained plain network by tokens, and its attention maps."""
    batches = x[:256].split(64)
    for tokens in ("all", "class", "patch"):
        for granularity in ("step", "block"):
            found = attnlab.stiffness(network, batches, tokens=tokens, granularity=granularity)
            print(tokens, found, [round(step.mean, 3) for step in found.nsi])
    print(attention_maps(network, batches))


def fixed_batch(x: Tensor, y: Tensor, steps: int = 150) -> None:
    """Whether a network that starts nearly without its branches learns one batch by heart."""
    for name in ("plain", "as printed"):
        for optimizer in ("AdamW", "SGD"):
            torch.manual_seed(0)
            network, (gate, options) = vit(), VARIANTS[name]
            if gate is not None:
                network = attnlab.insert(network, gate, **options)[0]
            rate = {"AdamW": 1e-3, "SGD": 0.1}[optimizer]
            update = getattr(torch.optim, optimizer)(network.parameters(), rate)
            losses = []
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
            row = {"batch": name, "with": optimizer, "gradient": slope, "loss": shown}
            print(json.dumps(row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("archive", type=Path)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--images", type=int, default=8000)
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS))
    parser.add_argument("--save", type=Path)
    arguments = parser.parse_args()
    with np.load(arguments.archive) as archive:
        x, y = images(archive["train_x"][: arguments.images]), archive["train_y"]
        test_x, test_y = images(archive["test_x"]), torch.from_numpy(archive["test_y"]).long()
    y = torch.from_numpy(y[: arguments.images]).long()
    fixed_batch(x[:32], y[:32])
    for seed in range(arguments.seeds):
        for name in arguments.variants:
            gate, options = VARIANTS[name]
            began = time.process_time()
            torch.manual_seed(seed)
            network = vit()
            if gate is not None:
                network = attnlab.insert(network, gate, **options)[0]
            start = gates(network)
            train(network, x, y, arguments.epochs, seed)
            row = {"variant": name, "seed": seed, "accuracy": accuracy(network, test_x, test_y)}
            if arguments.save is not None and seed == 0:
                arguments.save.mkdir(parents=True, exist_ok=True)
                file = arguments.save / f"{name.replace(', ', '-').replace(' ', '-')}.safetensors"
                save_file(network.state_dict(), file)
            row |= {"start": start, "end": gates(network), "cpu": time.process_time() - began}
            if name == "plain":
                looked_at(network, test_x)
                for other, given in VARIANTS.values():
                    if other is not None:
                        with_gates = attnlab.insert(network, other, **given)[0]
                        key = f"{other} {given}"
                        row[f"inserted {key}"] = accuracy(with_gates, test_x, test_y)
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
