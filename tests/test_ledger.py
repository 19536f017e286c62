"""The stored results of `tests/tools/ledger.py`: the quick ones in float64, and how it compares."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.tools import ledger
from tests.tools.entries import ENTRIES

FILE = Path(__file__).parent / "tools" / "ledger.json"
STORED = json.loads(FILE.read_text(encoding="utf-8"))
QUICK = (
    "insert.starts",
    "insert.shared",
    "insert.remove",
    "fold.exact",
    "fold.partial",
    "stiffness.grid",
    "stiffness.spectrum",
    "stiffness.of_given_nsi",
    "capture.gate_product",
    "place.by_effect",
    "shorten.named",
    "statistics.paired",
    "statistics.anytime",
    "statistics.compared",
    "logs.table",
    "dynamics.three_body",
    "style.losses",
)


@pytest.mark.parametrize("name", QUICK)
def test_a_stored_result_is_found_again(name: str) -> None:
    found = ledger.differences(STORED[name], ledger.computed(name))
    assert found.where == ""


def test_every_entry_is_stored_and_every_fault_is_one() -> None:
    assert set(STORED) == set(ENTRIES)
    assert set(ledger.FAULTS) <= set(STORED)


@pytest.mark.parametrize(
    ("found", "where"),
    [
        ({"a": [1.0, 2.0], "b": "x"}, ""),
        ({"a": [1.0 + 5e-10, 2.0], "b": "x", "more": 3}, ""),
        ({"a": [1.0 + 5e-9, 2.0], "b": "x"}, "a[0]: 1.0 → 1.000000005"),
        ({"a": [1.0], "b": "x"}, "a: [1.0, 2.0] → [1.0]"),
        ({"a": [1.0, 2.0]}, "b: 'x' → absent"),
        ({"a": [True, 2.0], "b": "x"}, "a[0]: 1.0 → True"),
    ],
)
def test_what_counts_as_a_difference(found: dict[str, object], where: str) -> None:
    assert ledger.differences({"a": [1.0, 2.0], "b": "x"}, found).where == where


def test_a_file_is_compared_entry_by_entry(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ledger.json"
    made = {"t.same": lambda: 1.5, "t.other": lambda: 2.0, "t.fault": lambda: 3.0}
    monkeypatch.setattr(ledger, "ENTRIES", made)
    assert ledger.main(["write", str(file)]) == 0
    stored = json.loads(file.read_text())
    assert stored == {"t.fault": 3.0, "t.other": 2.0, "t.same": 1.5}

    def fails() -> object:
        raise ValueError("no result")

    monkeypatch.setattr(ledger, "FAULTS", {"t.fault": "known"})
    made |= {"t.fault": lambda: 4.0}
    assert ledger.main(["compare", str(file)]) == 0
    made |= {"t.other": fails}
    file.write_text(json.dumps({**stored, "t.gone": 1}))
    capsys.readouterr()
    assert ledger.main(["compare", str(file)]) == 1
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "t.fault 2.5e-01 differs known fault: known",
        "t.other 0.0e+00 error ValueError: no result",
        "t.same 0.0e+00 same",
        "t.gone 0.0e+00 missing no entry has this name",
        "1 differs, 1 error, 1 missing, 1 same",
    ]
    assert ledger.main(["compare", str(file), "--only", "t.same"]) == 0
