"""What examining a network of half a billion parameters costs beside one forward of it.

`large-part` runs in processes of its own, whose peak of resident memory is measured.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

import torch
import transformers
import tyro

import attnlab
from attnlab.instruments.removal import removal_curves
from attnlab.instruments.removal.images import trials_of
from attnlab.instruments.removal.rankings import RANKINGS
from benchmarks._common import Table, child, machine, write_json

Part = Literal["forward", "steps", "describe_steps", "stiffness", "influence", "plan"]
PARTS: tuple[Part, ...] = get_args(Part)


def _network(layers: int) -> transformers.LlamaForCausalLM:
    config = transformers.LlamaConfig(
        vocab_size=32_000,
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=layers,
        num_attention_heads=16,
        use_cache=False,
    )
    return transformers.LlamaForCausalLM(config).eval()


def large_part(part: tyro.conf.Positional[Part], layers: int, tokens: int, json: Path) -> None:
    """Do one thing in this process; `large` starts it.

    Args:
        part: what.
        layers: of the network.
        tokens: of the one input.
        json: where CPU seconds and memory in MiB are written.
    """
    torch.manual_seed(0)
    network = _network(layers)
    batch = {"input_ids": torch.randint(0, 32_000, (1, tokens))}

    def forward() -> object:
        with torch.no_grad():
            return network(**batch)

    def influence() -> object:
        trials = trials_of(attnlab.open(network), [batch], None)
        assert trials is not None
        return RANKINGS["influence"].scores(trials.ranked, ())

    done: dict[Part, Callable[[], object]] = {
        "forward": forward,
        "steps": lambda: attnlab.steps(network, batch),
        "describe_steps": lambda: attnlab.describe_steps(network, [batch]),
        "stiffness": lambda: attnlab.stiffness(network, [batch]),
        "influence": influence,
        # What `attnlab shorten NETWORK --remove 1 --plan` computes.
        "plan": lambda: removal_curves(network, [batch], most=1),
    }
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    began = time.process_time()
    done[part]()
    found = {
        "parameters": sum(each.numel() for each in network.parameters()),
        "seconds": time.process_time() - began,
        "before": before,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    write_json(json, found)


def large(
    layers: int = 26,
    tokens: int = 128,
    rounds: int = 3,
    parts: tuple[Part, ...] = PARTS,
    json: Path = Path("out/speed-large.json"),
) -> None:
    """Time what finds and measures steps on a random Llama, each in a process of its own.

    CPU seconds beside those of a forward in the same round, and the peak of resident memory. Takes
    3 GB and some minutes.

    Args:
        layers: of the network; 26 make half a billion parameters.
        tokens: of the one input.
        rounds: how often everything is run.
        parts: what is done; a forward, beside which all is shown, always.
        json: where the numbers are written.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = tuple(dict.fromkeys(("forward", *parts)))
    found: dict[Part, list[dict[str, float]]] = {part: [] for part in done}
    for _ in range(rounds):
        for part in done:
            asked = ("large-part", part, "--layers", layers, "--tokens", tokens)
            found[part].append(child("speed", *asked, environment=environment))
    rows = []
    for part, mine in found.items():
        ratios = sorted(
            one["seconds"] / other["seconds"]
            for one, other in zip(mine, found["forward"], strict=True)
        )
        peak = max(one["peak"] for one in mine)
        more = peak - max(one["peak"] for one in found["forward"])
        times = f"{ratios[len(ratios) // 2]:.2f} [{ratios[0]:.2f}, {ratios[-1]:.2f}]"
        rows.append([part, times, f"{peak:.0f}", f"{more:+.0f}"])
    million = found["forward"][0]["parameters"] / 1e6
    title = f"Llama, {million:.0f} M parameters, {tokens} tokens, float32, one thread"
    columns = ["what", "CPU time / one forward", "peak MiB", "beside a forward"]
    Table(title, columns, rows).print()
    write_json(json, {"machine": machine(), "found": found})
