"""Student's t of scipy.special against scipy.stats and closed forms."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
from scipy import stats

from attnlab.lab.statistics.student import upper_quantile, upper_tail


@pytest.mark.parametrize("freedom", [1, 2, 3, 4.37, 9, 29, 99, 999])
def test_as_scipy_has_it(freedom: float) -> None:
    for t in (-50.0, -2.0, -0.1, 0.0, 1e-3, 0.1, 1.0, 2.0, 5.0, 10.0, 20.0):
        assert upper_tail(t, freedom) == pytest.approx(stats.t.sf(t, freedom), rel=1e-9)
    for p in (0.4, 0.1, 0.05, 0.025, 0.005, 1e-6):
        assert upper_quantile(p, freedom) == pytest.approx(stats.t.isf(p, freedom), rel=1e-9)


def test_closed_forms() -> None:
    """With one degree of freedom it is Cauchy's distribution, and with two it has a square root."""
    assert upper_tail(1.0, 1) == pytest.approx(0.25)
    assert upper_tail(3.0, 2) == pytest.approx(0.5 - 3 / (2 * math.sqrt(2 + 9)))
    assert upper_quantile(0.25, 1) == pytest.approx(1.0)
    assert upper_tail(math.inf, 3) == 0.0


def test_looking_at_a_study_needs_neither_torch_nor_all_of_scipy() -> None:
    code = (
        "import sys; import attnlab.lab.study.current, attnlab.lab.pages.write\n"
        "from attnlab.lab.statistics import paired_difference\n"
        "from attnlab.lab.statistics.equivalent import equivalence\n"
        "one, two = {0: 1.0, 1: 2.0, 2: 4.0}, {0: 1.0, 1: 1.0, 2: 2.0}\n"
        "paired_difference(one, two), equivalence(one, two, 1.0)\n"
        "print([name for name in ('torch', 'scipy.stats', 'sklearn') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
