"""Counts on a grid against the definition at every grid point."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings

from attnlab import _errors
from attnlab.instruments.stiffness.grid import (
    Grid,
    proportion_counts,
    proportion_integral,
    regular_grid,
    surface_counts,
)
from attnlab.instruments.stiffness.stages import kept_steps
from attnlab.instruments.stiffness.total import tns

from .test_total import brute_force, stiff, stiff_steps, trajectories


def random_case(seed: int, sizes: tuple[int, ...] = (4, 3, 1, 5), inputs: int = 11):
    generator = torch.Generator().manual_seed(seed)
    stages = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return 3 * torch.rand(inputs, len(stages), generator=generator).double() ** 2, stages


@pytest.mark.parametrize("seed", range(3))
def test_counts_follow_the_definition_at_every_point(seed):
    z, stages = random_case(seed)
    grid = Grid(torch.tensor([0.0, 0.1, 0.7, 1.3, 9.0]), torch.tensor([0.0, 0.5, 0.9, 2.0]))
    surface, proportion = surface_counts(z, stages, grid), proportion_counts(z, stages, grid)
    for i, one in enumerate(grid.relative.tolist()):
        for j, two in enumerate(grid.absolute.tolist()):
            rows = z.tolist()
            assert surface[i, j] == sum(stiff(row, stages.tolist(), one, two) for row in rows)
            assert proportion[i, j] == sum(
                stiff_steps(row, stages.tolist(), one, two) for row in rows
            )


def test_a_value_on_a_degree_reaches_it():
    """≥ and not >, in both directions: NSI 1, 2, 3 has the mean 2 and the excess 1/2."""
    z, stages = torch.tensor([[5.0, 1.0, 2.0, 3.0]]).double(), torch.zeros(4, dtype=torch.long)
    below, above = (
        torch.nextafter(torch.tensor(0.5).double(), torch.tensor(x).double()) for x in (0.0, 1.0)
    )
    degrees = torch.stack([below, torch.tensor(0.5).double(), above])
    sizes = torch.tensor([2.5, 3.0, 3.5]).double()
    expected = [[1, 1, 0], [1, 1, 0], [0, 0, 0]]
    assert surface_counts(z, stages, Grid(degrees, sizes)).tolist() == expected
    assert proportion_counts(z, stages, Grid(degrees, sizes)).tolist() == expected


@given(trajectories())
@settings(max_examples=80, deadline=None)
def test_bounds_and_monotony(trajectory):
    z, stages = torch.from_numpy(trajectory[0])[None], torch.tensor(trajectory[1])
    grid = regular_grid(points=9)
    surface, proportion = surface_counts(z, stages, grid), proportion_counts(z, stages, grid)
    # A stiff input has at least one stiff block, and at most all that are kept.
    assert (proportion >= surface).all()
    assert (proportion <= surface * kept_steps(stages).sum()).all()
    for counts in (surface, proportion):
        assert (counts.diff(dim=0) <= 0).all()
        assert (counts.diff(dim=1) <= 0).all()


def test_the_grid_integral_converges_to_tns():
    z, stages = random_case(5, inputs=40)
    grid = regular_grid(relative=5.0, absolute=3.0, points=1501)
    cell = (5.0 / 1500) * (3.0 / 1500)
    area = surface_counts(z, stages, grid).double().sum() * cell / len(z)
    assert area.item() == pytest.approx(tns(z, stages).mean().item(), rel=5e-3)


@given(trajectories())
@settings(max_examples=80, deadline=None)
def test_proportion_integral_against_brute_force(trajectory):
    z, stages = trajectory
    kept = max(int(kept_steps(torch.tensor(stages)).sum()), 1)
    got = proportion_integral(torch.from_numpy(z)[None], torch.tensor(stages)).item()
    expected = brute_force(z, stages, count=stiff_steps) / kept
    assert got == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_counts_add_over_batches():
    z, stages = random_case(7, inputs=30)
    grid = regular_grid()
    parts = [surface_counts(part, stages, grid) for part in z.split([1, 12, 17])]
    assert torch.equal(sum(parts), surface_counts(z, stages, grid))


def test_the_smallest_grid_has_the_ends():
    grid = regular_grid(relative=3.0, absolute=1.0, points=2)
    assert grid.relative.tolist() == [0, 3]
    assert grid.absolute.tolist() == [0, 1]


def test_grid_message():
    with pytest.raises(_errors.InputError) as error:
        regular_grid(points=1)
    assert str(error.value) == (
        "Expected a grid of at least 2 points up to positive degrees but got points=1, "
        "relative=4.0, absolute=2.0."
    )
