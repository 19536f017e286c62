"""How fast trained networks are, timed interleaved in one process: a ratio to the first, each with
an interval. Networks that were timed alone, while others trained, cannot be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from attnlab._errors import FoldError
from attnlab.results.environment import processor
from attnlab.results.speed import GroupSpeed, TimedNetwork
from attnlab.subject import open_run
from attnlab.subject.run import load_network
from attnlab.surgery.folding import has_constant_gates
from attnlab.surgery.folding.fold import fold
from attnlab.timing import Latency, latencies

SECONDS = 20.0
"""How long the networks of one group are timed at most."""
_PRECISION = 0.03
"""Timing ends when every interval is this close to its ratio, as a share of it."""


def time_interleaved(
    directories: Mapping[str, Path],
    images: int,
    *,
    threads: int | None = None,
    seconds: float = SECONDS,
) -> GroupSpeed:
    """Time the networks of finished runs, by row, and of those that fold the folded network as
    well, on one batch of at most `images` test images. The first row is the reference."""
    first = open_run(next(iter(directories.values())), trust=True)
    networks = {row: load_network(folder).to(first.device) for row, folder in directories.items()}
    number = min(images, first.batch_size, first.images().facts.test)
    example, one = next(first.inputs(number)), next(first.inputs(1))
    folded = {
        row: plain
        for row, network in networks.items()
        if (plain := _folded(network, one)) is not None
    }
    contestants = [*networks.values(), *folded.values()]
    if len(contestants) == 1:
        contestants *= 2  # nothing to compare with, but its own time
    taken = latencies(contestants, example, precision=_PRECISION, seconds=seconds, threads=threads)
    own, rest = taken[: len(networks)], taken[len(networks) :]
    reference = 1000 * taken[0].after / number
    wide = [each for each in taken if not each.narrow]
    return GroupSpeed(
        reference=next(iter(networks)),
        rows=_by_row(list(networks), own, directories, reference),
        folded=_by_row(list(folded), rest, directories, reference),
        rounds=taken[0].rounds,
        batch=number,
        threads=taken[0].threads,
        device=first.device.type,
        processor=processor(),
        narrow=not wide,
        busy=wide[0].busy if wide else "",
    )


def _by_row(
    rows: Sequence[str],
    taken: Sequence[Latency],
    directories: Mapping[str, Path],
    reference: float,
) -> dict[str, TimedNetwork]:
    """The times by row; of a lone network, which is timed twice, the second is left over."""
    return {
        row: TimedNetwork(
            folder=directories[row].name,
            milliseconds=reference * each.ratio,
            ratio=each.ratio,
            low=each.low,
            high=each.high,
        )
        for row, each in zip(rows, taken, strict=False)
    }


def _folded(network: nn.Module, example: Any) -> nn.Module | None:
    if not has_constant_gates(network):
        return None
    try:
        return fold(network, example=example)[0]
    except FoldError:
        return None  # the measurement of the fold says why
