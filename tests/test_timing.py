"""`attnlab.latency`: its interval against simulated truth, and two networks of known cost."""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import binom
from torch import nn

import attnlab
from attnlab._errors import OptionError
from attnlab.residuals.example import example_input
from attnlab.timing import is_narrow, latencies, ratio_interval


def waiting(seconds: float) -> object:
    """A function that takes this long, whoever else is busy."""
    return lambda: time.sleep(seconds)


def test_ratio_of_two_functions_of_known_time() -> None:
    # Long enough that a busy machine's delays count for little.
    found = attnlab.latency(waiting(0.04), waiting(0.1), (), seconds=3)
    assert 2 < found.low <= found.ratio <= found.high < 2.7
    assert found.after / found.before == pytest.approx(found.ratio, rel=1e-12)
    assert 0.04 <= found.before < 0.06
    assert found.rounds >= 10
    assert (found.batch, found.threads) == (0, torch.get_num_threads())


def test_several_in_turns_are_each_against_the_first() -> None:
    calls = [waiting(seconds) for seconds in (0.004, 0.008, 0.004)]
    found = latencies(calls, (), seconds=3, precision=0.1)
    assert [round(each.ratio) for each in found] == [1, 2, 1]
    assert (found[0].ratio, found[0].low, found[0].high) == (1, 1, 1)
    assert len({each.rounds for each in found}) == 1


def test_none_always_runs_behind_the_same_one() -> None:
    order: list[int] = []
    calls = [lambda n=n: (order.append(n), time.sleep(0.006)) for n in range(3)]
    latencies(calls, (), seconds=0.01)
    rounds = [tuple(order[6:][i : i + 3]) for i in range(0, len(order) - 6, 3)]
    assert all(sorted(each) == [0, 1, 2] for each in rounds)
    followers = {(a, b) for each in rounds for a, b in itertools.pairwise(each)}
    assert followers == set(itertools.permutations(range(3), 2))


def test_networks_are_timed_in_eval_mode_and_put_back() -> None:
    network = attnlab.create("resnet20").train()
    seen = set()
    network.register_forward_hook(
        lambda module, *_: seen.add((module.training, torch.is_grad_enabled()))
    )
    mean = network.state_dict()["bn1.running_mean"].clone()
    attnlab.latency(network, network, torch.randn(2, 3, 8, 8), seconds=0.1)
    assert seen == {(False, False)}
    assert network.training
    assert torch.equal(network.state_dict()["bn1.running_mean"], mean)


def test_threads_are_as_before() -> None:
    before = torch.get_num_threads()
    found = attnlab.latency(nn.Identity(), nn.Identity(), torch.ones(3), seconds=0.1, threads=1)
    assert (found.threads, found.batch) == (1, 3)
    assert torch.get_num_threads() == before


def test_ranks_of_the_interval_are_those_of_the_binomial_distribution() -> None:
    for number, level in itertools.product((7, 10, 25, 80, 301), (0.95, 0.975)):
        low, high = ratio_interval(range(number), level)
        outside = int(binom.ppf((1 - level) / 2, number, 0.5))
        # The largest rank with P(fewer than it lie below the median) ≤ (1 − level) / 2.
        while outside and binom.cdf(outside - 1, number, 0.5) > (1 - level) / 2:
            outside -= 1
        assert (low, high) == (outside - 1, number - outside)
    assert ratio_interval([1.0, 2.0]) == (0.0, math.inf)


@pytest.mark.parametrize("noise", ["normal", "heavy", "skewed"])
def test_the_interval_holds_the_true_ratio_95_percent_of_the_time(noise: str) -> None:
    """Also when one stops as soon as it is narrow. The true median ratio is 1.25."""
    random = np.random.default_rng(0)
    held, trials = 0, 600
    for _ in range(trials):
        e = {
            "normal": lambda: 0.05 * random.standard_normal(250),
            "heavy": lambda: 0.03 * random.standard_t(2, 250),
            "skewed": lambda: 0.05 * (random.exponential(size=250) - math.log(2)),
        }[noise]()
        ratios = (1.25 * np.exp(e)).tolist()
        number = check = 10
        while number < 250 and not (number >= check and is_narrow(ratios[:number], 0.02)):
            check = math.ceil(1.3 * check) if number >= check else check
            number += 1
        low, high = ratio_interval(ratios[:number])
        held += low <= 1.25 <= high
    assert held / trials > 0.95 - 2 * math.sqrt(0.05 * 0.95 / trials)


def test_it_stops_when_narrow_and_says_when_it_cannot() -> None:
    quick = attnlab.latency(waiting(0.005), waiting(0.005), (), precision=0.2, seconds=60)
    assert quick.narrow
    assert quick.busy == ""
    random = np.random.default_rng(1)

    def unsteady() -> None:
        time.sleep(0.005 * float(random.uniform(1, 6)))

    wide = attnlab.latency(unsteady, unsteady, (), precision=0.001, seconds=0.5)
    assert not wide.narrow
    assert wide.busy.startswith("the machine is too busy for a narrower interval (")
    assert str(wide) == f"{wide.statement}; {wide.busy}"


class Clock:
    """A clock that only the functions under test move on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr("attnlab.timing._now", lambda: self.now)

    def takes(self, seconds: Callable[[int], float]) -> Callable[[], None]:
        """A function that takes so long at its n-th call, from 0."""
        numbers = itertools.count()

        def call() -> None:
            self.now += seconds(next(numbers))

        return call


def test_short_functions_are_repeated_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn takes 5 ms: three runs of 2 ms, after one that does not count and one that does."""
    clock, counts = Clock(monkeypatch), [0, 0]

    def counted(which: int, seconds: float) -> Callable[[], None]:
        def take(_: int) -> float:
            counts[which] += 1
            return seconds

        return clock.takes(take)

    found = attnlab.latency(counted(0, 2**-9), counted(1, 2**-7), ())
    assert counts == [2 + 10 * 3, 2 + 10]
    assert (found.ratio, found.low, found.high, found.rounds) == (4, 4, 4, 10)
    assert (found.before, found.after) == pytest.approx((2**-9, 2**-7))
    assert found.narrow


def test_when_the_rounds_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 16 rounds three odd ones no longer count, but they are looked at after 10, 13 and 17; and
    rounds end when the time is over, not before the tenth."""
    clock = Clock(monkeypatch)
    odd = [clock.takes(lambda _: 1.0), clock.takes(lambda call: 4.0 if call in (2, 3, 4) else 1.0)]
    found = attnlab.latency(*odd, (), seconds=1000)
    assert (found.rounds, found.ratio, found.narrow) == (17, 1, True)
    for seconds, rounds in ((60, 18), (58, 18), (57, 17), (1, 10)):
        two = [clock.takes(lambda _: 1.0), clock.takes(lambda call: 4.0 if call % 2 else 1.0)]
        found = attnlab.latency(*two, (), seconds=seconds)  # 17 rounds take 8 · 7 + 2 = 58
        assert (found.rounds, found.narrow) == (rounds, False)
        assert (found.low, found.high) == (1, 4)


def test_an_example_is_made_of_what_the_network_says() -> None:
    network = attnlab.create("resnet20")
    found = attnlab.latency(network, network, seconds=0.01)
    assert found.batch == len(example_input(network))


def test_text_is_consistent() -> None:
    found = attnlab.latency(waiting(0.005), waiting(0.01), (), seconds=1, precision=0.3)
    assert found.statement == (
        f"{found.ratio:.2f}× [{found.low:.2f}, {found.high:.2f}] ({found.before * 1e3:.2f} → "
        f"{found.after * 1e3:.2f} ms; 95 % interval of {found.rounds} interleaved rounds; batch 0, "
        f"threads {torch.get_num_threads()})"
    )


def test_a_busy_machine_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the cores that this process may use, and the load of the last minute."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2, 5}, raising=False)
    monkeypatch.setattr(os, "getloadavg", lambda: (4.25, 7.0, 9.0), raising=False)
    clock = Clock(monkeypatch)
    two = [clock.takes(lambda _: 1.0), clock.takes(lambda call: 4.0 if call % 2 else 1.0)]
    found = attnlab.latency(*two, (), seconds=1)
    assert found.load == 4.25
    said = "the machine is too busy for a narrower interval"
    assert found.busy == f"{said} (3 cores, load 4.2)"
    assert replace(found, load=None).busy == f"{said} (3 cores)"
    monkeypatch.delattr(os, "sched_getaffinity")
    for there, cores in ((6, 6), (None, 1)):
        monkeypatch.setattr(os, "cpu_count", lambda there=there: there)
        assert replace(found, load=None).busy == f"{said} ({cores} cores)"


def test_ten_seconds_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """23 rounds of 1/4 and 5/8 seconds in turn take 9.875, and one more is over ten."""
    clock = Clock(monkeypatch)
    for measure in (
        lambda *two: attnlab.latency(*two, ()),
        lambda *two: latencies(two, ())[1],
    ):
        two = [clock.takes(lambda _: 0.125), clock.takes(lambda call: 0.5 if call % 2 else 0.125)]
        assert measure(*two).rounds == 24


def test_narrow_is_as_close_as_asked() -> None:
    """Of eleven ratios the interval is from the second to the tenth."""
    ratios = [2.0] * 5 + [3.0] + [4.5] * 5
    assert ratio_interval(ratios) == (2.0, 4.5)
    assert is_narrow(ratios, 0.5)
    assert not is_narrow([1.99] * 5 + ratios[5:], 0.5)
    assert not is_narrow([*ratios[:6], *[4.51] * 5], 0.5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"precision": 0.0}, "Expected precision between 0 and 1 but got 0.0."),
        ({"precision": 1.0}, "Expected precision between 0 and 1 but got 1.0."),
        ({"precision": -0.1}, "Expected precision between 0 and 1 but got -0.1."),
        ({"seconds": 0.0}, "Expected seconds above 0 but got 0.0."),
        ({"seconds": math.nan}, "Expected seconds above 0 but got nan."),
        ({"threads": 0}, "Expected threads to be at least 1 but got 0."),
    ],
)
def test_messages(settings: dict[str, float], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        attnlab.latency(nn.Identity(), nn.Identity(), torch.ones(1), **settings)
    assert str(caught.value) == message


def test_what_a_function_takes_is_not_known() -> None:
    with pytest.raises(OptionError) as caught:
        attnlab.latency(len, len)
    assert str(caught.value) == (
        "Expected an example to call <built-in function len> with, or () if it takes nothing: "
        "only for a network is it known what it takes."
    )
    with pytest.raises(OptionError, match="Expected at least 2 networks to compare but got 1"):
        latencies([nn.Identity()], torch.ones(1))


def test_one_network_is_compared_with_nothing() -> None:
    with pytest.raises(OptionError) as caught:
        latencies([nn.Identity()], torch.ones(1))
    assert str(caught.value) == "Expected at least 2 networks to compare but got 1."


def test_few_ratios_have_no_interval_and_the_median_lies_inside() -> None:
    """Of five the ends are left with 1/32 each, 0.0625: more than 2.5 %."""
    assert ratio_interval([1.0, 2.0, 3.0, 4.0, 5.0]) == (0.0, math.inf)
    assert ratio_interval([3.0, 1.0, 2.0, 4.0, 5.0], 0.93) == (1.0, 5.0)
    assert ratio_interval([3.0, 1.0, 2.0, 4.0, 6.0, 5.0], 0.95) == (1.0, 6.0)
    assert ratio_interval([1.0]) == (0.0, math.inf)
