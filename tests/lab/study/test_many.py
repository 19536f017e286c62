"""Thousands of runs: each is read once, and a table grows by what a run adds."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.lab.pages.simulated import simulate

from attnlab.lab.pages.write import report
from attnlab.lab.study import Store, judging
from attnlab.lab.study.current import up_to_date
from attnlab.lab.study.table import GrowingTable, study_table
from attnlab.results import StoredRun, digest, run, run_reader
from attnlab.results.digest import FILE, SETTLED
from attnlab.results.study import StoredStudy

GAINS = {"se": 0.4, "asr:se": 0.4}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, StoredStudy]:
    out = tmp_path_factory.mktemp("many")
    study = simulate(out, data=("cifar10",), gains=GAINS, seeds=4, epochs=3)
    time.sleep(2 * SETTLED)
    return out, study


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often files of runs are read, by name."""
    count: Counter[str] = Counter()
    read_bytes, read_digest = run_reader.read_bytes, run.read_digest

    def contents(path: Path, remedy: str) -> bytes:
        count[path.name] += 1
        return read_bytes(path, remedy)

    def digests(directory: Path) -> Any:
        count[FILE] += 1
        return read_digest(directory)

    monkeypatch.setattr(run_reader, "read_bytes", contents)
    monkeypatch.setattr(run, "read_digest", digests)
    return count


def test_a_page_reads_the_digest_of_every_run_once(
    made: tuple[Path, StoredStudy], counted: Counter[str], tmp_path: Path
) -> None:
    out, study = made
    first = report(out, tmp_path / "first.html").read_text(encoding="utf-8")
    assert counted["stiffness.json"] == 12 + 3  # once for the digests, and for pictures
    counted.clear()
    again = report(out, tmp_path / "first.html").read_text(encoding="utf-8")
    assert counted.pop(FILE) == len(study.runs) == 12
    # Whole files are read of the few runs whose pictures are shown: the first of every row, and of
    # those with gates how these moved from epoch to epoch.
    assert counted == {"stiffness.json": 3, "stripe.json": 2, "metrics.jsonl": 2}
    assert again == first


def test_a_table_reads_nothing_else(made: tuple[Path, StoredStudy], counted: Counter[str]) -> None:
    out, study = made
    first = up_to_date(Store(out), study.name)[1]
    counted.clear()
    assert up_to_date(Store(out), study.name)[1] == first
    assert counted == {FILE: 12}


def test_every_change_of_a_file_is_seen(made: tuple[Path, StoredStudy]) -> None:
    """What is read by the digest is what is read without it, before and after any change."""
    out, study = made
    entry = study.runs[-1]
    folder = out / entry.folder
    assert entry.stored_in(out).is_digested
    files = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size]
    assert folder / FILE in files
    for path in files:
        before = path.read_bytes()
        for place in {0, len(before) // 2, len(before) - 2}:
            flipped = before[:place] + bytes([before[place] ^ 1]) + before[place + 1 :]
            path.write_bytes(flipped)
            plain, digested = StoredRun(folder, entry.run_id), entry.stored_in(out)
            assert [str(each) for each in digested.damage] == [str(each) for each in plain.damage]
            assert digested.is_trained == plain.is_trained
            if plain.is_trained:
                assert digested.result == plain.result
        path.write_bytes(before)
    (folder / "failure.json").write_text('{"error": "new"}')
    failure = entry.stored_in(out).failure
    assert failure is not None
    assert failure.error == "new"
    (folder / "failure.json").unlink()
    time.sleep(2 * SETTLED)
    assert entry.stored_in(out).is_digested


def test_a_file_that_was_just_written_is_not_trusted(tmp_path: Path) -> None:
    """It may be written again within one tick of the clock."""
    study = simulate(tmp_path, data=("cifar10",), gains={}, seeds=1, epochs=2)
    (entry,) = study.runs
    (tmp_path / entry.folder / "data.json").touch()
    assert not entry.stored_in(tmp_path).is_digested
    assert entry.stored_in(tmp_path).is_trained
    time.sleep(2 * SETTLED)
    assert entry.stored_in(tmp_path).is_digested


def test_times_in_whole_seconds_need_two_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a file system whose clock ticks once in two seconds: what is written twice within a tick,
    with the same size, has the same times."""
    second = 1_700_000_000
    for name, written in (("coarse", second * 10**9), ("fine", second * 10**9 + 40_000_000)):
        stat = os.stat_result(
            (0, 1, 0, 1, 0, 0, 5, second, second, second),
            {"st_mtime_ns": written, "st_ctime_ns": written},
        )
        monkeypatch.setattr(digest, "_files", lambda *_, stat=stat: iter([("a", stat)]))
        known = []
        for later in (0.05, 0.5, 1.9, 2.1):
            now = second * 10**9 + int(later * 1e9)
            monkeypatch.setattr(digest.time, "time_ns", lambda now=now: now)
            known.append(digest.signature(tmp_path) is not None)
        assert known == {"coarse": [False] * 3 + [True], "fine": [False] + [True] * 3}[name]


def test_a_folder_that_cannot_be_written_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: Counter[str]
) -> None:
    study = simulate(tmp_path, data=("cifar10",), gains={}, seeds=1, epochs=2)
    time.sleep(2 * SETTLED)
    counted.clear()

    def refused(path: Path, content: object) -> None:
        del path, content
        raise PermissionError(13, "may not be written")

    monkeypatch.setattr("attnlab.results.digest.write_whole", refused)
    monkeypatch.setattr("attnlab._files.os.access", lambda *_: False)
    store = Store(tmp_path)
    assert store.run(study.runs[0]).is_digested
    found = study_table(store, study)
    assert found.finished == (study.runs[0].folder,)
    assert counted["stiffness.json"] == 1
    assert not (tmp_path / study.runs[0].folder / FILE).exists()


def test_a_digest_says_what_the_files_say(made: tuple[Path, StoredStudy]) -> None:
    out, study = made
    for entry in study.runs:
        digested, plain = entry.stored_in(out), StoredRun(out / entry.folder, entry.run_id)
        assert digested.is_digested
        assert not plain.is_digested
        assert digested.result == plain.result
        assert digested.curve == plain.curve
        assert digested.environment == plain.environment
        assert digested.data == plain.data
        assert digested.config == plain.config
        assert digested.measurements == plain.measurements
        assert digested.noted.keys() == plain.noted.keys()
        for name, found in plain.noted.items():
            noted = digested.noted[name]
            assert (noted.settings, noted.notes) == (found.settings, found.notes)


def test_a_table_grows_by_what_a_run_adds(
    made: tuple[Path, StoredStudy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a run that is not the plain backbone's, one row: its last and its best epoch."""
    out, study = made
    compared: list[tuple[int, ...]] = []
    monkeypatch.setattr(
        "attnlab.lab.study.judging.paired_difference", _counting(compared, "paired_difference")
    )
    judging._difference.cache_clear()
    *most, last = study.runs
    assert not last.cell.plain
    hidden = out / last.folder
    hidden.rename(out / "hidden")
    try:
        growing = GrowingTable(Store(out), study)
        before = growing.table()
        assert before.finished == tuple(entry.folder for entry in most)
        compared.clear()
        assert growing.table() == before
        assert compared == []
    finally:
        (out / "hidden").rename(hidden)
    growing.add(last.folder)
    grown = growing.table()
    assert 1 <= len(compared) <= 2  # once where the last epoch is the best
    assert set(compared) == {(0, 1, 2, 3)}
    whole = study_table(Store(out), study)
    # The times of the networks are those of the beginning.
    assert [replace(group, timed=None, why_not_timed="") for group in grown.groups] == [
        replace(group, timed=None, why_not_timed="") for group in whole.groups
    ]
    assert (grown.notes, set(grown.finished)) == (whole.notes, set(whole.finished))


def _counting(calls: list[tuple[int, ...]], name: str) -> Callable[..., Any]:
    real = getattr(judging, name)

    def call(module: dict[int, float], *rest: Any, **named: Any) -> Any:
        calls.append(tuple(sorted(module)))
        return real(module, *rest, **named)

    return call
