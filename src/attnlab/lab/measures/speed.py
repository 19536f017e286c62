"""How fast trained networks are, timed in turns in one process: a ratio to the first, each with an
interval. Networks that were timed alone, while others trained, cannot be compared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from attnlab._errors import FoldError
from attnlab.data import load_data
from attnlab.lab.training.directory import read_config
from attnlab.results.environment import processor
from attnlab.results.speed import GroupSpeed, Timed
from attnlab.subject import Subject
from attnlab.subject.run import load_network
from attnlab.surgery.folding import has_constant_gates
from attnlab.surgery.folding.fold import fold
from attnlab.tasks import build_task
from attnlab.timing import Latency, latencies

SECONDS = 20.0
"""How long the networks of one group are timed at most."""
_PRECISION = 0.03


def time_in_turns(
    directories: Mapping[str, Path],
    images: int,
    *,
    threads: int | None = None,
    seconds: float = SECONDS,
) -> GroupSpeed:
    """Time the networks of finished runs, by row, and of those that fold the folded network as
    well, on one batch of at most `images` test images. The first row is the reference."""
    first = next(iter(directories.values()))
    config = read_config(first)
    data = load_data(config.data)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    networks = {row: load_network(folder).to(device) for row, folder in directories.items()}
    number = min(images, config.recipe.test_batch_size, data.facts.test)
    task = build_task(config.task, data.facts)
    first_network = next(iter(networks.values()))
    subject = Subject("", first_network, data, task=task, batch_size=number, device=device)
    example, one = next(subject.inputs(number)), next(subject.inputs(1))
    plain = {
        row: made
        for row, network in networks.items()
        if (made := _folded(network, one)) is not None
    }
    contestants = [*networks.values(), *plain.values()]
    if len(contestants) == 1:
        contestants *= 2  # nothing to compare with, but its own time
    taken = latencies(contestants, example, precision=_PRECISION, seconds=seconds, threads=threads)
    reference = 1000 * taken[0].after / number
    own, rest = taken[: len(networks)], taken[len(networks) :]
    wide = [each for each in taken if not each.narrow]
    return GroupSpeed(
        reference=next(iter(networks)),
        rows={
            row: _timed(each, directories[row].name, reference)
            for row, each in zip(networks, own, strict=True)
        },
        folded={
            row: _timed(each, directories[row].name, reference)
            for row, each in zip(plain, rest, strict=False)
        },
        rounds=taken[0].rounds,
        batch=number,
        threads=taken[0].threads,
        device=device.type,
        processor=processor(),
        narrow=not wide,
        busy=wide[0].busy if wide else "",
    )


def _timed(found: Latency, folder: str, reference: float) -> Timed:
    return Timed(
        folder=folder,
        milliseconds=reference * found.ratio,
        ratio=found.ratio,
        low=found.low,
        high=found.high,
    )


def _folded(network: nn.Module, example: object) -> nn.Module | None:
    if not has_constant_gates(network):
        return None
    try:
        return fold(network, example=example)[0]  # type: ignore[arg-type]
    except FoldError:
        return None  # the measurement of the fold says why
