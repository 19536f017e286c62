"""ASR's Table 1: what is timed, and going on after a stop. How is tests/test_timing.py's."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import attnlab
from attnlab._errors import InputError, OptionError
from attnlab.cli import main
from attnlab.instruments.speed import SpeedRow, SpeedTable, TimedImages, speed_table
from attnlab.instruments.speed import measure as module
from attnlab.instruments.speed.measure import GATES, forms_of
from attnlab.instruments.speed.result import PAPER, SpeedMachine
from attnlab.timing import Latency


def test_forms() -> None:
    assert forms_of("none") == ("as trained", "fused")
    assert forms_of("cbam") == ("as trained",)
    assert forms_of("asr:se") == ("as trained", "folded", "fused")
    assert forms_of("asr:se+se") == ("as trained", "folded")
    assert set(PAPER) == set(GATES)


def test_parameters_of_the_rows_are_the_papers() -> None:
    """In millions, as printed for CIFAR100; others are in tests/surgery/insertion."""
    plain = attnlab.create("resnet164", 100).eval()
    example = torch.randn(1, 3, 32, 32)
    rows = (("none", "as trained", 1.73), ("se", "as trained", 1.93), ("asr:se", "folded", 1.73))
    for gate, form, millions in rows:
        built = module._built(plain, gate, form, example)
        number = sum(p.numel() for p in built.parameters())
        assert round(number / 1e6, 2) == millions, gate


def test_the_noise_is_that_of_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timed against itself a network would hide what depends on where its memory lies."""
    timed = []

    def noted(*given: Any, **_: Any) -> Latency:
        timed.append(given)
        return Latency(1.0, 1.0, 1.0, 1.0, 1.0, 10, True, None, 1, 1)

    monkeypatch.setattr(module, "latency", noted)
    speed_table([TimedImages(16, 5, 1)], ("none",), "resnet20", device="cpu")
    plain, copied, images = timed[0]
    assert not {p.data_ptr() for p in plain.parameters()} & {
        p.data_ptr() for p in copied.parameters()
    }
    assert torch.equal(plain(images), copied(images))


def rows(file: Path, gates: tuple[str, ...], done: list[SpeedRow]) -> list[SpeedRow]:
    images = [TimedImages(16, 5, 2), TimedImages(16, 5, 1)]
    found = speed_table(
        images, gates, "resnet20", seconds=0.01, device="cpu", file=file, report=done.append
    )
    return list(found.rows)


def test_a_stopped_table_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "speed.json"
    first: list[SpeedRow] = []
    rows(file, ("none", "se"), first)
    assert [(row.gate, row.form, row.images.batch) for row in first] == [
        ("none", "as trained", 2),
        ("none", "as trained", 1),
        ("none", "fused", 2),
        ("none", "fused", 1),
        ("se", "as trained", 2),
        ("se", "as trained", 1),
    ]
    for row in first:
        # One statement: the ratio is that of the two figures beside it.
        figures = row.plain_images_per_second / row.images_per_second
        assert row.ratio == pytest.approx(figures, rel=1e-9)
        assert row.low <= row.ratio <= row.high
        assert row.rounds >= 10
    second: list[SpeedRow] = []
    both = rows(file, ("none", "asr:se+se"), second)
    assert [(row.gate, row.form, row.images.batch) for row in second] == [
        ("asr:se+se", "as trained", 2),
        ("asr:se+se", "as trained", 1),
        ("asr:se+se", "folded", 2),
        ("asr:se+se", "folded", 1),
    ]
    assert both[:4] == first[:4]
    assert second[-1].parameters == first[-1].parameters  # SE stays
    stored = json.loads(file.read_text())
    assert len(stored["rows"]) == 10
    file.write_text(json.dumps({**stored, "threads": 99}))
    with pytest.raises(InputError) as refused:
        rows(file, ("none",), [])
    assert str(refused.value) == (
        f"{str(file)!r} was measured with threads = 99, and now it is {torch.get_num_threads()}: "
        f"one table has one machine. Use another file."
    )
    file.write_text("[]")
    with pytest.raises(InputError) as other:
        rows(file, ("none",), [])
    assert str(other.value) == f"{str(file)!r} is not a table of `attnlab speed`. Use another file."


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--sizes", "32"], "Expected as many --classes as --sizes but got 2 and 1."),
        (["--batches", "0"], "Expected --batches of at least 1 but got [0]."),
        (["--seconds", "0"], "Expected seconds to be above 0 but got 0.0."),
        (["--threads", "0"], "Expected --threads to be at least 1 but got 0."),
        (["--device", "gpu"], "Expected device to be cpu or cuda but got 'gpu'."),
    ],
)
def test_wrong_options(
    options: list[str], text: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit):
        main(["speed", *options, "--out", str(tmp_path / "speed")])
    assert capsys.readouterr().err == f"attnlab: {text}\n"


def test_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(OptionError) as refused:
        speed_table([TimedImages(32, 10, 1)], device="cuda")
    assert str(refused.value) == (
        "There is no GPU that torch can use. Leave device out, or set cpu."
    )


def test_the_papers_figures_stand_beside() -> None:
    images = TimedImages(32, 100, 16)
    made = (
        SpeedRow(images, "se", "as trained", 1_929_388, 77.5, 94.1, 1.21, 1.19, 1.23, 7),
        SpeedRow(images, "asr:se", "folded", 1_727_284, 95.1, 94.1, 0.99, 0.98, 1.0, 7),
        SpeedRow(images, "asr:se", "fused", 1_714_724, 106.5, 94.1, 0.88, 0.87, 0.89, 7),
    )
    found = SpeedTable("resnet164", "cpu", 1, SpeedMachine("here", "2", "3"), made)
    se, folded, fused = found.table().texts()
    assert se[-2:] == ["1469/s 1.32", "286/s 1.53"]
    assert folded[-2:] == ["1942/s 1.00", "442/s 0.99"]
    assert fused[-3:] == ["7", "", ""]
    assert found.verdict == (
        "Relative to plain, se, as trained (1.210 times, 32 px, 100 classes, batch 16) takes the "
        "most time and asr:se, fused (0.880 times, 32 px, 100 classes, batch 16) the least."
    )
    other = replace(found, network="resnet20").table()
    assert "paper" not in other.columns
    assert SpeedTable.from_json(found.to_json()) == found


def test_the_papers_figures_are_as_printed() -> None:
    """Images per second of Table 1, CIFAR100 and STL10, and of the authors' public page."""
    printed = """none 1944 255 438, ie 1505 170 -, se 1469 173 286, srm 1387 162 -, dia 1092 154 -,
        spa 1080 180 -, cbam 793 127 -, asr:se 1942 255 442, asr:spa 1946 253 -,
        asr:se+se - - 289"""
    rows = [row.split() for row in printed.split(",")]
    sources = ("CIFAR100", "STL10", "public page")
    assert {
        gate: {source: int(each) for source, each in zip(sources, own, strict=True) if each != "-"}
        for gate, *own in rows
    } == PAPER


def test_a_table_of_both_sets_and_of_none() -> None:
    def row(size: int, classes: int, gate: str, ratio: float) -> SpeedRow:
        images = TimedImages(size, classes, 16)
        return SpeedRow(images, gate, "as trained", 1_929_388, 77.54, 94.1, ratio, 0.98, 1.02, 7)

    rows = tuple(row(96, 10, "none", each) for each in (1.01, 0.99))
    found = SpeedTable("resnet164", "cpu", 2, SpeedMachine("here", "2", "3"), rows)
    assert found.table().columns == [
        *("images", "network", "parameters", "images/s", "time / plain", "95 % interval"),
        *("rounds", "paper", "authors' page"),
    ]
    assert found.table().caption == "resnet164 on cpu, 2 threads, here"
    assert found.table().texts()[0] == [
        *("96 px, 10 classes, batch 16", "plain, as trained", "1,929,388", "77.5", "1.010"),
        *("0.980 to 1.020", "7", "255/s 1.00", "438/s 1.00"),
    ]
    assert found.verdict == (
        "A copy of the plain network reads 0.990 to 1.010, which is the noise."
    )
    one = replace(found, rows=(row(32, 10, "se", 1.2), rows[0]))
    assert one.verdict == (
        "Relative to plain, se, as trained (1.200 times, 32 px, 10 classes, batch 16) takes the "
        "most time. A copy of the plain network reads 1.010 to 1.010, which is the noise."
    )
    assert one.table().texts()[0][-2:] == ["", ""]  # of no set of the paper
    nowhere = replace(found, rows=one.rows[:1])
    assert len(nowhere.table().columns) == 7
    assert list(nowhere.figures()) == ["speed"]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (["see"], "Unknown gate 'see'. Did you mean 'se' or"),
        (["se", "asr:see"], "Unknown gate 'see'"),
        (["se", "--network", "resnet2"], "Unknown network 'resnet2'."),
    ],
)
def test_a_typo_is_refused_before_the_first_timing(
    given: list[str],
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(module, "latency", lambda *_, **__: pytest.fail("it was timed"))
    with pytest.raises(SystemExit):
        main(["speed", *given])
    assert capsys.readouterr().err.startswith(f"attnlab: {text}")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--sizes", "16", "--classes", "5", "--batches", "1", "--seconds", "0.01"]
    given = ["speed", "se", "--network", "resnet20", *few, "--out", str(tmp_path)]
    main(given)
    printed = capsys.readouterr().out
    assert "16 px, batch 1, se, as trained:" in printed
    assert "which is the noise" in printed
    found = SpeedTable.load(tmp_path / "speed.json")
    assert [row.label for row in found.rows] == [
        "plain, as trained",
        "plain, fused",
        "se, as trained",
    ]
    assert "speed_table" in printed
    page = (tmp_path / "speed.html").read_text()
    assert "time relative to the plain network" in page
    main([*given, "--json"])  # all rows are there
    assert json.loads(capsys.readouterr().out)["rows"] == json.loads(found.to_json())["rows"]
