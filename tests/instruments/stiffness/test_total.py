"""TNS against the definition, integrated cell by cell over all its breakpoints, and its laws."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from attnlab import _errors
from attnlab.instruments.stiffness.stages import kept_steps, usable
from attnlab.instruments.stiffness.total import tns


def stiff(z, stages, degree1, degree2):
    """Definition 2, word by word, for one input: is there a step with NSI ≥ max(μ(1+M₁), M₂)?"""
    return bool(stiff_steps(z, stages, degree1, degree2))


def stiff_steps(z, stages, degree1, degree2):
    found = 0
    for stage in sorted(set(stages)):
        members = [t for t, s in enumerate(stages) if s == stage][1:]
        if not members:
            continue
        mean = sum(z[t] for t in members) / len(members)
        found += sum(z[t] >= max(mean * (1 + degree1), degree2) for t in members)
    return found


def breakpoints(z, stages):
    ones, twos = {0.0}, {0.0}
    for stage in sorted(set(stages)):
        members = [t for t, s in enumerate(stages) if s == stage][1:]
        if not members:
            continue
        mean = sum(z[t] for t in members) / len(members)
        for t in members:
            twos.add(float(z[t]))
            if mean > 0 and z[t] > mean:
                ones.add(float(z[t] / mean - 1))
    return sorted(ones), sorted(twos)


def brute_force(z, stages, count=stiff):
    ones, twos = breakpoints(z, stages)
    total = 0.0
    for left, right in pairwise(ones):
        for low, high in pairwise(twos):
            middle = (left + right) / 2, (low + high) / 2
            total += (right - left) * (high - low) * count(z, stages, *middle)
    return total


plans = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(
    lambda sizes: [stage for stage, size in enumerate(sizes) for _ in range(size)]
)
values = st.floats(0.0, 8.0, allow_subnormal=False).map(lambda v: 0.0 if v < 1e-3 else v)


@st.composite
def trajectories(draw):
    stages = draw(plans)
    return draw(arrays(np.float64, len(stages), elements=values)), stages


@given(trajectories())
@settings(max_examples=150, deadline=None)
def test_brute_force(trajectory):
    z, stages = trajectory
    got = tns(torch.from_numpy(z)[None], torch.tensor(stages)).item()
    assert got == pytest.approx(brute_force(z, stages), rel=1e-12, abs=1e-12)


@given(trajectories(), st.floats(0.01, 100))
@settings(max_examples=100, deadline=None)
def test_laws(trajectory, factor):
    z, stages = trajectory
    z, stages = torch.from_numpy(z)[None], torch.tensor(stages)
    value = tns(z, stages)
    assert value.item() >= 0
    torch.testing.assert_close(tns(factor * z, stages), factor * value, rtol=1e-9, atol=1e-9)
    # The largest of n kept values is at most n times their mean.
    kept = kept_steps(stages)
    largest = max((int((kept & (stages == s)).sum()) for s in stages.unique()), default=0)
    assert (
        value.item() <= max(largest - 1, 0) * z[:, kept].amax().item() + 1e-9 if kept.any() else 1
    )


def test_invariant_to_the_order_of_kept_steps_and_stages():
    torch.manual_seed(0)
    z, stages = torch.rand(7, 9).double(), torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 1])
    within = torch.tensor([0, 3, 1, 2, 4, 8, 7, 5, 6])
    torch.testing.assert_close(tns(z[:, within], stages), tns(z, stages), rtol=1e-14, atol=0)
    swapped = torch.tensor([4, 5, 6, 7, 8, 0, 1, 2, 3])
    torch.testing.assert_close(
        tns(z[:, swapped], stages[swapped]), tns(z, stages), rtol=1e-14, atol=0
    )


def test_the_first_block_of_a_stage_does_not_count():
    z, stages = torch.rand(3, 6).double(), torch.tensor([0, 0, 0, 1, 1, 1])
    changed = z.clone()
    changed[:, [0, 3]] = torch.nan
    assert torch.equal(tns(changed, stages), tns(z, stages))
    assert usable(changed, stages).all()


def test_one_kept_block_per_stage_is_never_stiff():
    stages = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])  # ResNet-18
    assert torch.equal(tns(torch.rand(50, 8), stages), torch.zeros(50))


def test_by_hand():
    # One stage, NSI 1, 1, 4 kept: μ = 2, peak 4, excess 1, area 4.
    assert tns(torch.tensor([[9.0, 1, 1, 4]]), torch.zeros(4).long()).item() == 4.0
    # A second stage with peak 6 and excess 0.5 (2, 6, 4: μ = 4) adds [0, 0.5] × [4, 6] = 1.
    z = torch.tensor([[9.0, 1, 1, 4, 9, 2, 6, 4]])
    assert tns(z, torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])).item() == 5.0


def test_linear_residual_network_with_known_norms():
    """x_{t+1} = x_t + c_t x_t with scalars c_t: NSI is |c_t| whatever the input."""
    rates = torch.tensor([0.3, 0.1, 0.1, 0.4, 0.2], dtype=torch.float64)
    x = torch.randn(6, 10, dtype=torch.float64)
    columns = []
    for rate in rates:
        step = rate * x
        columns.append(step.norm(dim=1) / x.norm(dim=1))
        x = x + step
    value = tns(torch.stack(columns, 1), torch.zeros(5).long())
    # Kept 0.1, 0.1, 0.4, 0.2: μ = 0.2, peak 0.4, excess 1.
    torch.testing.assert_close(value, torch.full((6,), 0.4, dtype=torch.float64))


def test_gradcheck():
    torch.manual_seed(1)
    z = torch.rand(4, 9, dtype=torch.float64, requires_grad=True)
    stages = torch.tensor([0, 0, 0, 1, 1, 1, 1, 2, 2])
    assert torch.autograd.gradcheck(lambda z: tns(z, stages), z)
    means = torch.rand(1, 3, dtype=torch.float64) + 0.3
    assert torch.autograd.gradcheck(lambda z: tns(z, stages, means=means), z)


def test_box_loses_what_lies_outside():
    z, stages = torch.tensor([[9.0, 1, 1, 4]]), torch.zeros(4).long()
    assert tns(z, stages, box=(1.0, 1.0)).item() == 1.0
    assert tns(z, stages, box=(9.0, 9.0)).item() == 4.0


def test_given_means_below_the_peak_are_clamped():
    z, stages = torch.tensor([[9.0, 1, 2]]), torch.zeros(3).long()
    assert tns(z, stages, means=torch.tensor([[4.0]])).item() == 0.0
    assert tns(z, stages, means=torch.tensor([[1.0]])).item() == 2.0


def test_unusable_inputs_are_nan_and_alone():
    stages = torch.zeros(4).long()
    z = torch.tensor([[1.0, 1, 2, 3], [1, torch.nan, 2, 3], [1, 1, torch.inf, 3]])
    assert usable(z, stages).tolist() == [True, False, False]
    assert tns(z, stages).isnan().tolist() == [False, True, True]


def test_shape_messages():
    with pytest.raises(_errors.InputError) as error:
        tns(torch.rand(3, 5), torch.zeros(4).long())
    assert str(error.value) == (
        "Expected nsi of shape (inputs, steps) and one stage per step but got (3, 5) and (4,) "
        "stages."
    )
    with pytest.raises(_errors.InputError) as error:
        tns(torch.rand(3, 4), torch.zeros(4).long(), means=torch.rand(3))
    assert str(error.value) == (
        "Expected means of shape (1 or inputs, 1), one per stage that keeps a step, but got (3,)."
    )
