"""Do gates move that were put into a trained language model, and what did putting them in cost?

    attnlab study run language-retrofit
    python examples/gates_that_moved.py                     after it, from the same folder

For every row with gates, over the seeds: the validation loss that is added at once, before any step
is trained; mean and spread of the gates over tokens and channels at the end; and how far they
moved, the root mean square over tokens and channels of the trained gate less the same gate with its
first parameters, both on the states of the trained network.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import attnlab
from attnlab.lab.study import load_study, planned_runs
from attnlab.lab.training import RunConfig
from attnlab.lab.training.evaluate import evaluate
from attnlab.lab.training.identity import identify
from attnlab.subject.run import load_network, untrained_network
from attnlab.surgery.insertion import attachments
from attnlab.tasks import build_task

WINDOWS = 64
"""Validation windows on which gates are looked at."""


class Moved(NamedTuple):
    """Of the gates of one run."""

    added: float
    """Validation loss at the start, less that of the trained network without gates."""
    mean: float
    spread: float
    moved: float


def moved(folder: Path, source: Path, config: RunConfig) -> Moved:
    """Compare the gates of the run in `folder`, which began from that in `source`."""
    trained, before = load_network(folder), untrained_network(folder)
    plain = load_network(source)
    before.load_state_dict({**before.state_dict(), **plain.state_dict()})
    found = _gates(trained, before.eval(), folder)
    return Moved(_loss(before, config) - _loss(plain, config), *found)


def _gates(trained: nn.Module, before: nn.Module, folder: Path) -> tuple[float, float, float]:
    first = {name: each.gate_module for name, each in attachments(before)}
    values: list[Tensor] = []
    changes: list[Tensor] = []

    def look(name: str) -> Any:
        def hook(_: nn.Module, given: tuple[Any, ...], value: Tensor) -> None:
            values.append(value.double().flatten())
            changes.append((value - first[name](*given)).double().flatten())

        return hook

    handles = [
        each.gate_module.register_forward_hook(look(name)) for name, each in attachments(trained)
    ]
    with torch.no_grad():
        for inputs in attnlab.open(folder).inputs(WINDOWS):
            trained(inputs)
    for handle in handles:
        handle.remove()
    all_values, all_changes = torch.cat(values), torch.cat(changes)
    rms = all_changes.square().mean().sqrt().item()
    return all_values.mean().item(), all_values.std().item(), rms


def _loss(network: nn.Module, config: RunConfig) -> float:
    data = attnlab.data.load_data(config.data)
    task = build_task(config.task, data.facts)
    found = evaluate(network, task, task.prepared(data), 32, torch.device("cpu"))
    loss = found[task.metrics[0].name]
    assert loss is not None
    return loss


def of_study(study: str, out: Path) -> dict[str, list[Moved]]:
    """Of every row with gates that compute a value from the token, its finished runs."""
    rows: dict[str, list[Moved]] = {}
    for run in planned_runs(load_study(study)):
        folder, before = out / run.run_id, run.config.pretraining
        if before is None or run.config.attention in ("none", "lambda"):
            continue
        if (folder / "result.json").is_file():
            source = out / identify(before, run.checksums, threads=run.threads).run_id
            rows.setdefault(run.cell.row, []).append(moved(folder, source, run.config))
    return rows


def report(rows: Mapping[str, Sequence[Moved]]) -> str:
    """A table in Markdown: mean and standard deviation over seeds."""
    lines = [
        "| row | seeds | added at once, nats | gates | spread | moved |",
        "|---|---|---|---|---|---|",
    ]
    for row, found in rows.items():
        cells = [_text([getattr(each, name) for each in found]) for name in Moved._fields]
        lines.append(f"| {row} | {len(found)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _text(values: Sequence[float]) -> str:
    spread = f" ± {stdev(values):.3f}" if len(values) > 1 else ""
    return f"{fmean(values):+.3f}{spread}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--study", default="language-retrofit")
    parser.add_argument("--out", type=Path, default=Path("runs"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(report(of_study(arguments.study, arguments.out)))
