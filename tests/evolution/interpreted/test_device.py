"""`attnlab operators --device` with Triton's interpreter in the place of a GPU."""

from __future__ import annotations

import functools
import json

import pytest

from attnlab.cli import main
from attnlab.evolution import device
from attnlab.evolution._triton.launch import Triton

ARGUMENTS = "operators --device cpu --batch 1 --channels 2 --size 3 --kernel-size 3"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    edges = {"sequence": device.EDGES["sequence"]}
    monkeypatch.setattr(device, "check", functools.partial(device.check, edges=edges, runs=2))
    monkeypatch.setattr(device, "race", functools.partial(device.race, blocks=1))


def test_the_command(capsys, tmp_path):
    main([*ARGUMENTS.split(), "--out", str(tmp_path / "found.json")])
    found = json.loads((tmp_path / "found.json").read_text())
    assert "cpu float32: triton (interpreted on the CPU)" in found["machine"]["kernels"]
    assert {one["kernel"] for one in found["checks"]} == {"triton"}
    assert len(found["checks"]) == 7
    assert all(one["right"] for one in found["checks"])
    (stage,) = found["times"]
    rows = {(row["operator"], row["name"]): row for row in stage["rows"]}
    for operator in ("involution", "attention"):
        assert rows[operator, "attnlab"]["forward"] > 0
        assert rows[operator, "attnlab"]["both"] > 0
        assert rows[operator, "unfold"]["inside"] < 1e-5
        assert rows[operator, "unfold, compiled"]["forward"] is None
    assert rows["involution", "unfold"]["border"] < 1e-5
    assert "WRONG" not in capsys.readouterr().out


def test_a_wrong_kernel(monkeypatch, capsys):
    av = Triton.av
    monkeypatch.setattr(Triton, "av", lambda *arguments: av(*arguments) + 1e-3)
    with pytest.raises(SystemExit) as caught:
        main([*ARGUMENTS.split(), "--no-time"])
    assert caught.value.code == 1
    assert "WRONG: av, sequence, float32 on triton kernels: error" in capsys.readouterr().out
