"""The training loop on text against a loop that is written out for one network."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import nn
from torch.nn import functional as F

from attnlab.data import load_data
from attnlab.data.text import read_token_rows
from attnlab.lab.training import RunConfig
from attnlab.lab.training.loop import train_epoch
from attnlab.lab.training.reporters import CallReporter
from attnlab.lab.training.state import build_state
from attnlab.subject.building import build_network
from attnlab.tasks import build_task
from benchmarks._common import Table, interleave, write_json

Steps = Callable[[], float]
"""Trains so many steps; the seconds of the processor that they took."""


class Gpt(nn.Module):
    """A small GPT-2 as it is written in one file to be read: learned positions, LayerNorm, one
    matrix for queries, keys and values, GELU, no bias, one matrix for tokens in and out."""

    def __init__(
        self, num_classes: int, width: int = 96, depth: int = 6, context: int = 128
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(num_classes, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(_Block(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width, bias=False)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(places)
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)


class _Block(nn.Module):
    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = (nn.LayerNorm(width, bias=False) for _ in range(2))
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).chunk(3, 2)
        )
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(seen.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


GPT = "gpt"
"""What the network in this file is called among the contestants."""


def _config(steps: int, which: str) -> RunConfig:
    own = which == GPT
    return RunConfig(
        task="language",  # type: ignore[arg-type]
        data={"name": "stdlib", "test_subset": 8},  # type: ignore[arg-type]
        backbone="benchmarks.speed.language.Gpt" if own else "decoder",
        attention="none" if own else which,
        recipe={"name": "language", "steps": 1000 * steps, "interval": steps},  # type: ignore[arg-type]
    )


def _ours(config: RunConfig) -> Steps:
    fabric = Fabric(accelerator="cpu", devices=1)
    data = load_data(config.data)
    task = build_task(config.task, data.facts)
    state = build_state(fabric, config, build_network(config, task))
    show, rounds = CallReporter(lambda _: None), iter(range(config.recipe.epochs))

    def run() -> float:
        began = time.process_time()
        train_epoch(fabric, config, state, task, data, next(rounds), show)
        return time.process_time() - began

    return run


def _bare(config: RunConfig) -> Steps:
    """As small language models are trained by hand: random windows, two groups of AdamW, clipping,
    a cosine; no check, no count of what is right, no order that could be taken up again."""
    data = load_data(config.data)
    network = build_network(config, build_task(config.task, data.facts)).train()
    row, recipe = read_token_rows(config.data).train, config.recipe
    context = data.facts.shape[0]
    matrices = [p for p in network.parameters() if p.ndim > 1]
    others = [p for p in network.parameters() if p.ndim < 2]
    groups = [{"params": matrices}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(
        groups, recipe.lr, recipe.betas, weight_decay=recipe.weight_decay, fused=True
    )
    step = 0
    assert recipe.steps is not None
    assert recipe.clip is not None

    def run() -> float:
        nonlocal step
        began = time.process_time()
        for _ in range(recipe.interval):
            places = torch.randint(len(row) - context - 1, (recipe.batch_size,)).tolist()
            windows = np.stack([row[i : i + context + 1] for i in places]).astype(np.int64)
            tokens = torch.from_numpy(windows)
            for group in optimizer.param_groups:
                group["lr"] = recipe.lr * (1 + math.cos(math.pi * step / recipe.steps)) / 2
            optimizer.zero_grad()
            logits = network(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), recipe.clip)
            optimizer.step()
            step += 1
        return time.process_time() - began

    return run


def language(
    gates: tuple[str, ...] = ("none", "token", GPT),
    blocks: int = 20,
    steps: int = 10,
    json: Path = Path("out/speed-language.json"),
) -> None:
    """Time training on text against a loop that is written out for one network.

    Both train the same network, the small decoder on Python's library in batches of 8 × 128 bytes,
    with the same fused AdamW and clipping. Ours also checks every loss, counts what is right, keeps
    an order that can be taken up again and writes down how long it waited. A ratio above 1 means
    that ours is faster. "bare again" is the bare loop against a second copy of itself. Seconds are
    those of the processor, of one thread. About five minutes.

    Args:
        gates: in the network; none is the plain one, gpt a GPT-2 that is written out in this file.
        blocks: times that each contestant runs.
        steps: steps in each of these.
        json: where the numbers are written.
    """
    torch.set_num_threads(1)
    found = {}
    for gate in gates:
        config = _config(steps, gate)
        contestants = {"ours": _ours(config), "bare": _bare(config), "bare again": _bare(config)}
        times = interleave(contestants, blocks)
        tokens = steps * config.recipe.batch_size * 128
        pairs = {name: list(zip(times[name], times["ours"], strict=True)) for name in times}
        again = zip(times["bare"], times["bare again"], strict=True)
        found[gate] = {
            "tokens_per_second": {n: tokens / statistics.median(times[n]) for n in times},
            "ratio": statistics.median(bare / ours for bare, ours in pairs["bare"]),
            "bare_over_itself": statistics.median(one / other for one, other in again),
        }
    rows = [
        [
            gate,
            *(f"{each['tokens_per_second'][name]:,.0f}" for name in ("ours", "bare")),
            f"{each['ratio']:.3f}",
            f"{each['bare_over_itself']:.3f}",
        ]
        for gate, each in found.items()
    ]
    columns = ["gate or network", "ours tokens/s", "bare", "ours / bare", "bare again"]
    Table("Training on text, batch 8 of 128 bytes", columns, rows).print()
    write_json(json, {"steps": steps, "blocks": blocks, "found": found})
