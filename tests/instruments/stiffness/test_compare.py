"""Rank tests against scipy and by counting."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import kendalltau, spearmanr

import attnlab
from attnlab import _errors
from attnlab._ranks import kendall_without_ties, rank_test
from attnlab.instruments.stiffness.compare import rank
from attnlab.instruments.stiffness.figures import comparison_figure
from attnlab.instruments.stiffness.measure import stiffness
from attnlab.page.plot import to_svg


def test_four_networks_in_perfect_order_have_p_one_twelfth():
    found = rank_test("TNS", [1.0, 2.0, 3.0, 4.0], [91.0, 92.0, 93.0, 94.0])
    assert (found.kendall, found.spearman) == (1.0, 1.0)
    assert found.kendall_p == found.spearman_p == pytest.approx(2 / 24)


@pytest.mark.parametrize("seed", range(4))
def test_against_scipy_without_ties(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=7), rng.normal(size=7)
    found = rank_test("TNS", x, y)
    tau = kendalltau(x, y, method="exact")
    assert found.kendall == pytest.approx(tau.statistic)
    assert found.kendall_p == pytest.approx(tau.pvalue)
    assert found.spearman == pytest.approx(spearmanr(x, y).statistic)
    assert found.exact


def test_ties_follow_tau_b_and_rho():
    x, y = [1.0, 1.0, 2.0, 3.0, 3.0], [1.0, 2.0, 2.0, 5.0, 4.0]
    found = rank_test("depth", x, y)
    assert found.kendall == pytest.approx(kendalltau(x, y).statistic)
    assert found.spearman == pytest.approx(spearmanr(x, y).statistic)


def test_many_networks_are_sampled():
    rng = np.random.default_rng(0)
    x = rng.normal(size=12)
    y = x + rng.normal(size=12)
    found = rank_test("TNS", x, y)
    assert not found.exact
    expected = kendalltau(x, y, method="exact").pvalue
    assert found.kendall_p == pytest.approx(expected, abs=4 * math.sqrt(expected / 1e5))


def test_nothing_to_rank():
    assert math.isnan(rank_test("depth", [3.0, 3.0, 3.0], [1.0, 2.0, 3.0]).kendall)


@pytest.fixture(scope="module")
def results():
    images = torch.randn(4, 3, 32, 32)
    return [
        stiffness(attnlab.create(name), [images], name=name)
        for name in ("resnet20", "resnet32", "resnet44")
    ]


def test_comparison_warns_and_says_so(results):
    found = rank(results, [91.7, 92.6, 93.1], untrained=results)
    assert [test.predictor for test in found.tests] == [
        "TNS",
        "depth",
        "parameters",
        "TNS untrained",
    ]
    assert found.tests[1].kendall == 1.0
    assert found.tests[1].kendall_p == pytest.approx(2 / 6)
    assert found.notes == (
        "The stage plans differ (3 stages of 3+3+3 steps; 3 stages of 5+5+5 steps; 3 stages of "
        "7+7+7 steps). TNS depends on depth before any training, so networks of different plans "
        "are not comparable.",
    )
    assert "compatible with no relation" in found.verdict
    assert "untrained control" in to_svg(comparison_figure(found))


def test_comparison_messages(results):
    with pytest.raises(_errors.InputError) as error:
        rank(results, [1.0, 2.0])
    assert str(error.value) == "Expected one accuracy per network but got 2 for 3 of them."
    with pytest.raises(_errors.InputError) as error:
        rank(results[:2], [1.0, 2.0])
    assert str(error.value) == (
        "Expected at least 3 networks to rank but got 2: with two, every order is a perfect "
        "correlation."
    )


def test_ranks_and_kendall_as_scipy_has_them() -> None:
    draw = np.random.default_rng(0)
    for number in (2, 3, 4, 7, 12, 20, 33):
        one, other = draw.permutation(number) * 1.5, draw.permutation(number) - 2.0
        test = kendalltau(one, other, method="exact")
        tau, p = kendall_without_ties(one.tolist(), other.tolist())
        assert tau == pytest.approx(test.statistic)
        assert p == pytest.approx(test.pvalue)
        tied = draw.integers(0, 4, number).astype(float)
        found = rank_test("", tied.tolist(), one.tolist())
        if len(set(tied.tolist())) > 1:
            assert found.kendall == pytest.approx(kendalltau(tied, one).statistic)
            assert found.spearman == pytest.approx(spearmanr(tied, one).statistic)
    assert math.isnan(rank_test("", [1.0, math.nan, 2.0], [1.0, 2.0, 3.0]).kendall_p)
