"""Whatever module is exchanged for whatever other: all gates act, or the network refuses."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.surgery.insertion.exchanges import EXCHANGED_FOR, WHERE, Case, run_cases, table


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return run_cases()


def test_no_exchange_loses_a_gate_silently(cases):
    assert [case for case in cases if case.outcome not in ("equal", "refused")] == []


def test_the_cases_are_all_kinds_of_cases(cases):
    assert len(cases) == 600
    kinds = Counter((case.by, case.where) for case in cases)
    assert kinds.keys() == {(by, where) for by in EXCHANGED_FOR for where in WHERE}
    assert min(kinds.values()) >= 3
    outcomes = Counter(case.outcome for case in cases)
    assert min(outcomes.values()) > 100


def test_the_page_shows_what_came_of_them(cases):
    page = Path(__file__).parents[3] / "docs" / "how-to" / "tools.md"
    assert "\n".join(table(cases)) in page.read_text()
