"""Streaming metrics against numpy on the whole data, for any split over batches and processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from attnlab import _errors
from attnlab.instruments.stiffness import metrics
from attnlab.instruments.stiffness.quantiles import (
    RELATIVE_ERROR,
    count_into,
    empty_histogram,
    quantile,
)

from . import streaming
from .streaming import STAGES, build, data, run


def assert_equal(a, b):
    for name in a:
        for left, right in zip(a[name], b[name], strict=True):
            torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-12, equal_nan=True)


def _state_bytes(metric):
    return sum(getattr(metric, name).nbytes for name in metric._defaults)


def test_against_numpy():
    z = data()
    rows = np.delete(z.numpy(), [5, 17, 399], axis=0)
    found = run(z, batch=64)
    mean, spread, low, high, quantiles = found["nsi"]
    assert [count.item() for count in found["inputs"]] == [397, 3]
    np.testing.assert_allclose(mean, rows.mean(0), rtol=1e-12)
    np.testing.assert_allclose(spread, rows.std(0), rtol=1e-10)
    np.testing.assert_allclose(low, rows.min(0))
    np.testing.assert_allclose(high, rows.max(0))
    exact = np.quantile(rows, [0.05, 0.5, 0.95], axis=0, method="inverted_cdf")
    np.testing.assert_allclose(quantiles, exact, rtol=RELATIVE_ERROR + 1e-12)
    kept = np.delete(rows, [0, 18, 36], axis=1).reshape(len(rows), 3, 17)
    peak, excess = kept.max(2), kept.max(2) / kept.mean(2) - 1
    # At a fine enough grid the union of rectangles is a plain sum; here by inclusion–exclusion.
    union = sum(peak[:, i] * excess[:, i] for i in range(3))
    for i, j in ((0, 1), (0, 2), (1, 2)):
        union -= np.minimum(peak[:, i], peak[:, j]) * np.minimum(excess[:, i], excess[:, j])
    union += peak.min(1) * excess.min(1)
    np.testing.assert_allclose(found["tns"][0], union.mean(), rtol=1e-12)
    np.testing.assert_allclose(found["tns"][1], union.std(), rtol=1e-10)
    areas = (kept * (kept / kept.mean(2, keepdims=True) - 1).clip(0)).reshape(len(rows), 51)
    np.testing.assert_allclose(found["proportion"][1], areas.mean(), rtol=1e-12)
    blocks = np.delete(np.arange(54), [0, 18, 36])[areas.argmax(1)]
    np.testing.assert_array_equal(found["stiffest"][0], np.bincount(blocks, minlength=54))
    np.testing.assert_allclose(found["stiffest"][1], (areas.max(1) / union).mean(), rtol=1e-12)


def test_batches_do_not_matter():
    assert_equal(run(data(), batch=400), run(data(), batch=7))


def test_memory_does_not_grow():
    sizes = []
    for inputs in (1_000, 5_000):
        built = build()
        for metric in built.values():
            metric.update(data(inputs))
        sizes.append({name: _state_bytes(metric) for name, metric in built.items()})
    assert sizes[0] == sizes[1]
    assert sum(sizes[0].values()) < 8e6  # of 54 steps, nearly all of it the quantiles
    assert sizes[0]["tns"] == 32


def test_float32_batches_are_summed_in_float64():
    metric = metrics.TotalNeuralStiffness(STAGES)
    metric.update(data().float())
    assert metric.compute().mean.dtype == torch.float64


def test_nothing_to_compute_from():
    metric = metrics.TotalNeuralStiffness(STAGES)
    metric.update(torch.full((2, 54), torch.nan))
    with pytest.raises(_errors.InputError) as error:
        metric.compute()
    assert str(error.value) == (
        "Expected at least one usable input but got none (2 skipped, because a norm was zero or "
        "not finite)."
    )


def histogram(values):
    counts = empty_histogram(values.shape[1])
    count_into(counts, values)
    return counts


@pytest.mark.parametrize("probability", [0.0, 0.01, 0.5, 0.77, 1.0])
def test_quantiles_stay_within_the_stated_error(probability):
    values = torch.logspace(-3.3, 1.5, 999, dtype=torch.float64)[torch.randperm(999)][:, None]
    got = quantile(histogram(values), values.amin(0), values.amax(0), probability)
    exact = np.quantile(values.numpy(), probability, axis=0, method="inverted_cdf")
    np.testing.assert_allclose(got, exact, rtol=RELATIVE_ERROR + 1e-12)
    # Less than half of the third decimal, which tables show, for an NSI below 2.9.
    assert RELATIVE_ERROR * 2.9 < 0.0005


@given(
    arrays(
        np.float64,
        st.integers(1, 400),
        elements=st.floats(0.0006, 31, allow_subnormal=False),
    ),
    st.floats(0.001, 3),
)
def test_quantiles_of_any_values_agree_with_numpy_and_with_their_mean(noise, level):
    """Narrow distributions above all, whose values lie in few bins: the mean lies between the
    quantiles whenever the exact ones, which numpy knows, have it between them."""
    for given_values in (noise, level * (1 + 1e-3 * noise / 31)):
        values = torch.from_numpy(given_values)[:, None]
        counts, low, high = histogram(values), values.amin(0), values.amax(0)
        for probability in (0.05, 0.5, 0.95):
            got = quantile(counts, low, high, probability).item()
            exact = np.quantile(given_values, probability, method="inverted_cdf")
            assert got == pytest.approx(exact, rel=RELATIVE_ERROR + 1e-12)
        ends = [quantile(counts, low, high, p).item() for p in (0.05, 0.95)]
        mean = given_values.mean()
        first, last = np.quantile(given_values, [0.05, 0.95], method="inverted_cdf")
        if first <= mean <= last:
            assert ends[0] <= mean * (1 + RELATIVE_ERROR + 1e-12)
            assert ends[1] >= mean * (1 - RELATIVE_ERROR - 1e-12)


def test_quantiles_out_of_range_are_the_extremes():
    values = torch.tensor([[1e-6], [2e-6], [1.0], [50.0], [70.0]], dtype=torch.float64)
    low, high = values.amin(0), values.amax(0)
    assert quantile(histogram(values), low, high, 0.3).item() == 1e-6
    assert quantile(histogram(values), low, high, 0.9).item() == 70.0


def test_processes_agree(tmp_path):
    subprocess.run([sys.executable, streaming.__file__, str(tmp_path)], check=True, timeout=240)
    expected = run(data(), batch=50)
    for number in (1, 2, 4):
        for rank in range(number):
            assert_equal(torch.load(Path(tmp_path) / f"{number}-{rank}.pt"), expected)


def test_the_degrees_are_options_and_not_state():
    """A metric's state is what it has seen; torchmetrics saves none unless asked to."""
    metric = metrics.StiffnessSurface(STAGES)
    assert set(metric.state_dict()) == set()
