"""`latency`: how much longer one network takes than another, as a ratio with an interval.

The networks run interleaved, in one process, so that a clock that drifts or another program that
starts meets all of them. One round gives one ratio; the answer is the median over rounds with the
interval that the order of the ratios gives, which assumes nothing about their distribution. Rounds
go on until the interval is as narrow as asked or the time is over; then it says so.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import nn

from attnlab._errors import OptionError
from attnlab.residuals.example import Example, as_call, evaluating, example_input, input_shape

LEVEL = 0.95
"""The level of the interval that is reported."""
_NOMINAL = 0.975
"""The level of the interval that is formed. To stop when it is narrow favours samples that happen
to look narrow; this makes up for it, as tests/test_timing.py simulates. Rounds count as
independent."""
_FEWEST = 10
"""Rounds before the interval is looked at for the first time."""
_SHORTEST = 0.005
"""Seconds that one turn lasts at least, by repetition: shorter ones drown in the clock."""

Runnable = nn.Module | Callable[..., object]


@dataclass(frozen=True)
class Latency:
    """Two networks, timed interleaved; `before` and `after` are those of a typical round, so that
    `after` is `ratio` times `before`."""

    before: float
    """Seconds of one run of the first."""
    after: float
    """Seconds of one run of the second."""
    ratio: float
    """Median over rounds of second / first."""
    low: float
    """The lower end of the 95 % interval of the ratio."""
    high: float
    rounds: int
    narrow: bool
    """Whether the interval became as narrow as asked; if not, the machine was too busy."""
    load: float | None
    """Programs that wanted to run, over the last minute, on average; None where it is unknown."""
    batch: int
    threads: int

    @property
    def busy(self) -> str:
        """What kept the interval wide, in words; empty if it is narrow."""
        if self.narrow:
            return ""
        load = "" if self.load is None else f", load {self.load:.1f}"
        return f"the machine is too busy for a narrower interval ({_cores()} cores{load})"

    @property
    def statement(self) -> str:
        """The ratio with its interval, times, batch and threads; why the interval is wide is
        `busy`."""
        return (
            f"{self.ratio:.2f}× [{self.low:.2f}, {self.high:.2f}] ({1e3 * self.before:.2f} → "
            f"{1e3 * self.after:.2f} ms; 95 % interval of {self.rounds} interleaved rounds; batch "
            f"{self.batch}, threads {self.threads})"
        )

    def __str__(self) -> str:
        return f"{self.statement}; {self.busy}" if self.busy else self.statement


def latency(
    a: Runnable,
    b: Runnable,
    example: Example | None = None,
    *,
    precision: float = 0.02,
    seconds: float = 10.0,
    threads: int | None = None,
) -> Latency:
    """Measure how much longer `b` takes than `a`, run interleaved.

    Networks run in eval mode without gradients; any other function is called as it is.

    Args:
        a: a network, or a function.
        b: another.
        example: what both are called with: an input, a tuple of them, or a dictionary; `()` for
            functions that take nothing. Made up from what `a` says about itself when None.
        precision: stop when both ends of the interval are this close to the ratio, relatively.
        seconds: stop after this long in any case, but not before ten rounds.
        threads: of torch; as they are when None.
    """
    return latencies([a, b], example, precision=precision, seconds=seconds, threads=threads)[1]


def latencies(
    networks: Sequence[Runnable],
    example: Example | None = None,
    *,
    precision: float = 0.02,
    seconds: float = 10.0,
    threads: int | None = None,
) -> tuple[Latency, ...]:
    """Time several networks like `latency`: each against the first, all interleaved; the first has
    the ratio 1."""
    if not 0 < precision < 1:
        raise OptionError(f"Expected precision between 0 and 1 but got {precision}.")
    if not seconds > 0:
        raise OptionError(f"Expected seconds above 0 but got {seconds}.")
    if threads is not None and threads < 1:
        raise OptionError(f"Expected threads to be at least 1 but got {threads}.")
    if len(networks) < 2:
        raise OptionError(f"Expected at least 2 networks to compare but got {len(networks)}.")
    example = _example(networks[0]) if example is None else example
    arguments, keywords = as_call(nn.Identity(), example)
    shape = input_shape(arguments, keywords)
    with _threads(threads), ExitStack() as stack:
        calls = []
        for network in networks:
            if isinstance(network, nn.Module):
                stack.enter_context(evaluating(network))
            calls.append(_call(network, arguments, keywords))
        rounds = _rounds(calls, precision, seconds)
        used = torch.get_num_threads()
    return tuple(
        _summary(rounds, which, precision, shape[0] if shape else 0, used)
        for which in range(len(networks))
    )


def ratio_interval(ratios: Sequence[float], level: float = _NOMINAL) -> tuple[float, float]:
    """An interval that holds the median of the distribution that `ratios` come from, at least
    `level` of the time: order statistics, by the binomial distribution of the number below it."""
    ordered, number = sorted(ratios), len(ratios)
    outside, rank = 0.0, 0
    while rank < number // 2:
        outside += 2 * math.comb(number, rank) / 2**number
        if outside > 1 - level:
            break
        rank += 1
    if rank == 0:
        return 0.0, math.inf
    return ordered[rank - 1], ordered[number - rank]


def is_narrow(ratios: Sequence[float], precision: float) -> bool:
    """Return whether both ends of the interval are as close to the median as asked."""
    low, high = ratio_interval(ratios)
    middle = statistics.median(ratios)
    return low >= middle / (1 + precision) and high <= middle * (1 + precision)


def _rounds(
    calls: Sequence[Callable[[], object]], precision: float, seconds: float
) -> list[tuple[float, ...]]:
    """Seconds of one run of each, round by round."""
    repeats = [_repeats(call) for call in calls]
    taken: list[tuple[float, ...]] = []
    began, check = _now(), _FEWEST
    while True:
        # The order turns round and round, and back, so that none always follows the same one.
        order = [(len(taken) + place) % len(calls) for place in range(len(calls))]
        if len(taken) % 2:
            order.reverse()
        times = {which: _timed(calls[which], repeats[which]) for which in order}
        taken.append(tuple(times[which] for which in range(len(calls))))
        if len(taken) < _FEWEST:
            continue
        if _now() - began > seconds:
            return taken
        if len(taken) >= check:
            if all(is_narrow(_ratios(taken, which), precision) for which in range(1, len(calls))):
                return taken
            check = math.ceil(1.3 * check)  # few looks: each is a chance to stop by accident


def _ratios(rounds: Sequence[tuple[float, ...]], which: int) -> list[float]:
    return [times[which] / times[0] for times in rounds]


def _summary(
    rounds: Sequence[tuple[float, ...]], which: int, precision: float, batch: int, threads: int
) -> Latency:
    ratios = _ratios(rounds, which)
    ratio = statistics.median(ratios)
    low, high = ratio_interval(ratios)
    # What both took, free of which is which; divided as the ratio says.
    level = statistics.median(math.sqrt(times[0] * times[which]) for times in rounds)
    return Latency(
        before=level / math.sqrt(ratio),
        after=level * math.sqrt(ratio),
        ratio=ratio,
        low=low,
        high=high,
        rounds=len(rounds),
        narrow=is_narrow(ratios, precision),
        load=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        batch=batch,
        threads=threads,
    )


def _repeats(call: Callable[[], object]) -> int:
    """How often to run it in one turn; the first run, which allocates, does not count."""
    call()
    return max(1, math.ceil(_SHORTEST / max(_timed(call, 1), 1e-9)))


def _timed(call: Callable[[], object], repeats: int) -> float:
    began = _now()  # waits for a GPU
    for _ in range(repeats):
        call()
    return (_now() - began) / repeats


def _call(
    network: Runnable, arguments: tuple[object, ...], keywords: dict[str, object]
) -> Callable[[], object]:
    return lambda: network(*arguments, **keywords)


def _example(network: Runnable) -> Example:
    if not isinstance(network, nn.Module):
        raise OptionError(
            f"Expected an example to call {network!r} with, or () if it takes nothing: only for "
            f"a network is it known what it takes."
        )
    return example_input(network)


@contextmanager
def _threads(number: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    if number is not None:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _now() -> float:
    """Seconds, when all that a GPU was given is done."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return perf_counter()
