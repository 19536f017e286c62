"""As good as: the margin is stated beforehand, and rows that are added after a look are priced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.lab.study._results import finish, study

from attnlab.lab.statistics.anytime import p_value_above
from attnlab.lab.study import Store, Study, show_study
from attnlab.lab.study.plan import write_plan
from attnlab.results.study import read_plans
from attnlab.results.table import Equivalence

SEEDS = 8
MARGIN = 2.0


def value(row: str, seed: int) -> float:
    """All rows are as good as each other, with a spread of a third of a point."""
    return 0.9 + 0.003 * np.random.default_rng([seed, *row.encode()]).normal()


def claimed(rows: list[str], margin: float = MARGIN, to: str = "se", **changes: Any) -> Study:
    return study(SEEDS, rows, equivalence={"to": to, "margin": margin}, **changes)


def found(out: Path, chosen: Study) -> dict[str, Equivalence]:
    (group,) = show_study(chosen, out).groups
    return {row.label: row.equivalence for row in group.rows if row.equivalence is not None}


def by_hand(row: str, margin: float = MARGIN) -> float:
    """The larger p-value of the two e-processes, of the differences to se."""
    differences = [100 * (value(row, seed) - value("se", seed)) for seed in range(SEEDS)]
    return max(p_value_above([margin + sign * d for d in differences]) for sign in (1, -1))


def test_rows_that_are_added_after_a_look_share_half_of_the_error_rate(tmp_path: Path) -> None:
    finish(tmp_path, claimed(["none", "se"]), value)
    before = found(tmp_path, claimed(["none", "se"]))["plain"]
    assert before.verdict == "equivalent"
    assert not before.sequential
    more = claimed(["none", "se", "eca", "srm"])
    finish(tmp_path, more, value)
    after = found(tmp_path, more)
    assert after["plain"] == before  # what was planned beforehand keeps its test
    smaller, larger = sorted((by_hand("eca"), by_hand("srm")))
    expected = [2 * 2 * smaller, 2 * max(2 * smaller, larger)]  # Holm over the two, then 1/2
    assert after["eca"].sequential
    assert after["srm"].sequential
    corrected = [after[row].adjusted_p or 0.0 for row in ("eca", "srm")]
    assert sorted(corrected) == pytest.approx(expected)


def test_a_margin_that_is_changed_after_a_look_shows_nothing(tmp_path: Path) -> None:
    finish(tmp_path, claimed(["none", "se"]), value)
    wider = claimed(["none", "se"], 2 * MARGIN)
    for _ in range(2):  # before and after it is planned
        now = found(tmp_path, wider)["plain"]
        assert now.verdict == "cannot tell"
        assert now.note.startswith("the margin of equivalence and the row it is about were stated")
        assert now.note.endswith(f"after {2 * SEEDS} runs had been seen")
        write_plan(Store(tmp_path), wider)
    # It does not help to go back and claim it was always so.
    back = claimed(["none", "se"])
    write_plan(Store(tmp_path), back)
    assert found(tmp_path, back)["plain"].verdict == "cannot tell"
    claims = [plan.claim for plan in read_plans(tmp_path / "studies" / back.name).plans]
    assert claims == [f"as good as se within {margin}" for margin in (2.0, 4.0, 2.0)]


def test_a_margin_may_be_stated_when_only_the_baseline_is_known(tmp_path: Path) -> None:
    finish(tmp_path, study(SEEDS, ["none"]), value)
    both = claimed(["none", "se"], to="plain")
    finish(tmp_path, both, value)
    assert found(tmp_path, both)["se"].verdict == "equivalent"


def test_a_claim_under_another_name_is_late(tmp_path: Path) -> None:
    finish(tmp_path, claimed(["none", "se"]), value)
    assert found(tmp_path, claimed(["none", "se"], name="again"))["plain"].verdict == "cannot tell"


def test_what_was_dropped_still_counts(tmp_path: Path) -> None:
    finish(tmp_path, claimed(["none", "se", "eca", "srm"]), value)
    whole = found(tmp_path, claimed(["none", "se", "eca", "srm"]))
    fewer = found(tmp_path, claimed(["none", "se"]))
    corrected, alone = fewer["plain"].adjusted_p, fewer["plain"].p_value
    assert corrected == whole["plain"].adjusted_p
    assert corrected is not None
    assert alone is not None
    assert corrected > alone


def test_a_reference_that_is_added_after_a_look_is_refused(tmp_path: Path) -> None:
    finish(tmp_path, study(SEEDS, ["none", "eca"]), value)
    late = claimed(["none", "eca", "se"])
    finish(tmp_path, late, value)
    assert found(tmp_path, late)["plain"].verdict == "cannot tell"
