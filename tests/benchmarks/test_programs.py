"""The benchmark programs: every subcommand explains itself, and a small one writes its JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from benchmarks._common import interleave, run_program
from benchmarks.coverage.networks import collection, written

ROOT = Path(__file__).parents[2]
PROGRAMS = ("speed", "coverage", "stiffness", "se_out")


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_subcommand_explains_itself(program, capsys) -> None:
    if program == "se_out":
        pytest.importorskip("onnxruntime")
    commands = import_module(f"benchmarks.{program}.__main__").COMMANDS
    for command in commands:
        with pytest.raises(SystemExit) as stopped:
            run_program(program, commands, [command, "--help"])
        assert stopped.value.code == 0
        assert "--json" in capsys.readouterr().out


def test_a_small_benchmark_prints_a_table_and_writes_json(tmp_path) -> None:
    file = tmp_path / "found.json"
    command = [sys.executable, "-m", "benchmarks.coverage", "timm", "--only", "test_byobnet"]
    done = subprocess.run(
        [*command, "--json", str(file)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "1 networks: discovery right on 1 (100.0 %)" in done.stdout
    found = json.loads(file.read_text())
    assert found["machine"]["torch"]
    (row,) = found["rows"]
    assert (row["found"], row["discovery"], row["insertion"]) == (4, "right", "ok")


@pytest.mark.parametrize("name", ["timm", "beyond", "share"])
def test_networks_are_read_and_written_alike(name) -> None:
    stored = collection(name)
    text = (ROOT / "benchmarks" / "data" / f"{name}.json").read_text(encoding="utf-8")
    assert written(stored) == text


def test_interleaved_contestants_answer_once_per_round() -> None:
    order: list[str] = []
    contestants = {name: lambda name=name: order.append(name) or len(order) for name in "ab"}
    answers = interleave(contestants, rounds=3)
    assert order[:2] == ["a", "b"]  # to warm up
    assert [sorted(order[n : n + 2]) for n in (2, 4, 6)] == [["a", "b"]] * 3
    assert sorted(answers["a"] + answers["b"]) == [3, 4, 5, 6, 7, 8]
