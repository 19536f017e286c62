"""The programs that print the papers' figures over seeds: what they make of measurements."""

from __future__ import annotations

import math
from types import SimpleNamespace

import torch
from tests.programs import program

from attnlab.results.epoch import EpochRecord


def test_the_share_of_stiff_steps_is_over_degrees_that_most_inputs_reach() -> None:
    example = program("examples/stiffness_over_seeds.py")
    found = SimpleNamespace(surface=((1.0, 0.8), (0.6, 0.4)), proportion=((0.5, 0.3), (0.1, 0.9)))
    assert example.proportion(found) == 0.3


def record(epoch: int, lr: float, gate: float, alone: float) -> EpochRecord:
    gates = {"a": [gate, gate, 9.0], "b": [-gate, gate, -gate]}
    return EpochRecord(
        epoch=epoch, lr=lr, test={}, gates=gates, image_gates={"a": [alone], "b": [alone]}
    )


def test_how_far_gates_move_at_the_first_drop_and_per_learning_rate() -> None:
    example = program("examples/settling_gates.py")
    values = [(0.05, 0.0, 0.0), (0.1, 1.0, 2.0), (0.1, 3.0, 4.0), (0.01, 3.5, 4.5)]
    history = [record(epoch, *each) for epoch, each in enumerate(values, 1)]
    found = example.settling(history, image=False)
    assert found.moves == [1.0, 2.0, 0.5]  # the middle channel of three, the same at both gates
    assert found.rates == [0.1, 0.1, 0.01]
    assert found.ratios() == [2.0, 0.25]
    assert example.settling(history, image=True).moves == [2.0, 2.0, 0.5]
    assert example.first_drop(found.rates) == 1
    assert example.first_drop([0.1, 0.08, 0.05]) is None


def test_the_interval_of_ratios_is_of_their_logarithms() -> None:
    example = program("examples/settling_gates.py")
    # Logarithms 0, 1, 2: mean 1, the sample's deviation 1, t(0.975, 2) = 4.302653.
    half = 4.302653 / math.sqrt(3)
    text = example.interval({seed: math.exp(seed) for seed in range(3)})
    assert text == f"{math.e:.3f} [{math.exp(1 - half):.3f}, {math.exp(1 + half):.3f}]"


def test_a_search_over_codes_finds_the_best_that_it_asked_for() -> None:
    example = program("examples/search_ticket.py")
    assert example.where((0, 2, 1)) == "code:100001010"
    asked: list[tuple[int, ...]] = []

    def reward(code: tuple[int, ...]) -> float:
        asked.append(code)
        return float(sum(code))

    found = example.policy(reward, 9, torch.Generator().manual_seed(0))
    assert 3 < len(set(asked)) <= 9
    assert sum(found) == max(map(sum, asked))
    rewards = {code: float(code == (1, 2, 0)) for code in example.CODES}
    assert example.proposals(rewards, 0)["all 27"] == [(1, 2, 0)]
    assert len(example.CODES) == 27
    assert len(set(example.proposals(rewards, 0)["drawn"])) == 4


def test_maps_that_no_image_changes_have_the_ratio_zero() -> None:
    example = program("examples/spatial_maps.py")
    same = SimpleNamespace(maps=(((0.0, 1.0), (0.0, 1.0)),) * 3)
    assert example.ratio(same) == 0.0
    # Two images, +1 and −1 around the mean map (0, 1): spread 1 across images, 0.5 across places.
    moved = SimpleNamespace(maps=(((1.0, 2.0),), ((-1.0, 0.0),)))
    assert example.ratio(moved) == 2.0


def test_a_part_of_a_unet_is_the_mean_of_its_counted_steps() -> None:
    example = program("examples/unet_stiffness.py")
    steps = [
        SimpleNamespace(name=name, kept=kept, mean=mean)
        for name, kept, mean in (
            ("encoder.0.0", False, 9.0),
            ("encoder.0.1", True, 1.0),
            ("encoder.1.1", True, 2.0),
            ("decoder.0.1", True, 4.0),
        )
    ]
    found = SimpleNamespace(nsi=steps)
    assert [example.of_part(found, part) for part in example.PARTS] == [1.5, 4.0]
