"""A study minus its control: rows by label and seed; no answer if the two do not fit."""

from __future__ import annotations

import math
from types import ModuleType

import pytest
from tests.programs import program

from attnlab.results.table import Group, StudyRow

PLAIN = {0: 90.0, 1: 91.0, 2: 92.0}


@pytest.fixture(name="example", scope="module")
def fixture_example() -> ModuleType:
    return program("examples/learned_or_frozen.py")


def group(**rows: dict[int, float]) -> Group:
    made = tuple(
        StudyRow(name, name == "plain", tuple(of), (), by_seed=of) for name, of in rows.items()
    )
    return Group("digits resnet20", "digits", "resnet20", made)


def test_rows_pair_by_label_and_seed(example: ModuleType) -> None:
    learned = group(plain=PLAIN, eca=PLAIN, se={2: 96.0, 0: 91.0, 1: 93.0})
    frozen = group(plain=PLAIN, se={0: 90.0, 1: 91.0, 2: 93.0})
    found = example.learned_minus_frozen(learned, frozen)
    assert list(found) == ["se", "mean of all"]  # eca has no control
    # Differences 1, 2, 3: the mean is 2, the sample's deviation 1, t(0.975, 2) = 4.302653.
    own = found["se"].difference
    assert own.mean == pytest.approx(2)
    assert own.high == pytest.approx(2 + 4.302653 / math.sqrt(3), rel=1e-6)
    assert found["se"].verdict == "no difference shown"


def test_the_mean_is_over_rows_within_each_seed(example: ModuleType) -> None:
    learned = group(plain=PLAIN, se={0: 1.0, 1: 2.0, 2: 3.0}, eca={0: 3.0, 1: 6.0, 2: 3.0})
    frozen = group(plain=PLAIN, se=dict.fromkeys(range(3), 0.0), eca=dict.fromkeys(range(3), 0.0))
    mean = example.learned_minus_frozen(learned, frozen)["mean of all"].difference
    assert mean.mean == pytest.approx((2 + 4 + 3) / 3)
    assert mean.std == pytest.approx(1)


def test_studies_with_another_plain_network_are_refused(example: ModuleType) -> None:
    other = group(plain=PLAIN | {2: 92.5}, se=PLAIN)
    with pytest.raises(SystemExit, match="Expected the same plain network"):
        example.learned_minus_frozen(other, group(plain=PLAIN, se=PLAIN))


def test_a_control_without_its_row_is_refused(example: ModuleType) -> None:
    with pytest.raises(SystemExit, match=r"but not: \['se'\]"):
        example.learned_minus_frozen(group(plain=PLAIN), group(plain=PLAIN, se=PLAIN))


def test_equal_differences_have_no_interval(example: ModuleType) -> None:
    found = example.learned_minus_frozen(
        group(plain=PLAIN, gct=PLAIN), group(plain=PLAIN, gct=PLAIN)
    )
    assert example.line("gct", found["gct"]).startswith("| gct | +0.00 [–] | | the same difference")
