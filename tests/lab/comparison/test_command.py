"""`attnlab compare`, its page, and what it prints for Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.lab.comparison import logs

from attnlab.cli import main


def test_command_and_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(file) for file in logs.study(tmp_path)]
    broken = tmp_path / "broken.csv"
    broken.write_text("")
    out = tmp_path / "compare.html"
    main(
        [
            "compare",
            *files,
            str(broken),
            "--by",
            "model",
            "--baseline",
            "plain.yaml",
            "-o",
            str(out),
        ]
    )
    shown = capsys.readouterr().out
    assert "cbam.yaml" in shown
    assert "better" in shown
    assert f"* left out: {broken} is empty" in shown
    page = out.read_text()
    assert "<strong>cbam.yaml</strong> beats plain.yaml by more than seed noise." in page
    assert "broken.csv is left out." in page
    stored = json.loads(out.with_suffix(".json").read_text())
    assert stored["format"] == "attnlab compare 1"
    assert len(stored["runs"]) == 12


def test_python_lines_do_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(file) for file in logs.study(tmp_path)]
    options = ["--by", "model", "--baseline", "plain.yaml", "--looked"]
    main(["compare", *files, *options, "-o", str(tmp_path / "a.html")])
    _, _, lines = capsys.readouterr().out.partition("In Python:\n")
    (tmp_path / "a.html").unlink()
    namespace: dict[str, Any] = {}
    exec("\n".join(line.strip() for line in lines.splitlines()), namespace)
    assert (tmp_path / "a.html").is_file()
    assert namespace["found"].judged.sequential
    main(["compare", *files, *options])
    _, _, lines = capsys.readouterr().out.partition("In Python:\n")
    exec("\n".join(line.strip() for line in lines.splitlines()), {})
    assert "| cbam.yaml | 6 |" in capsys.readouterr().out


def test_direction_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "results.tsv"
    values = {"plain": (0.71, 0.72, 0.705), "se": (0.61, 0.625, 0.6)}
    lines = [f"{m}\t{s}\t{v}" for m, own in values.items() for s, v in enumerate(own)]
    file.write_text("\n".join(["model\tseed\tscore", *lines]))
    main(["compare", str(file), "--metric", "score", "--lower"])
    shown = capsys.readouterr().out
    assert "better" in shown
    assert "better='lower'" in shown
    main(["compare", str(file), "--metric", "score", "--higher"])
    assert "worse" in capsys.readouterr().out
    for options, said in (
        ([], "The name 'score' does not say whether higher or lower values are better."),
        (["--higher", "--lower"], "Expected one of --higher and --lower but got both."),
    ):
        with pytest.raises(SystemExit):
            main(["compare", str(file), "--metric", "score", *options])
        assert said in capsys.readouterr().err


def test_the_command_refuses_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["compare", str(tmp_path / "no.csv"), "--metric", "a"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        f"attnlab: None of 1 files could be read: {tmp_path / 'no.csv'} cannot be read: No such "
        "file or directory.\n"
    )
