"""`attnlab operators`."""

from __future__ import annotations

import pytest
import torch

from attnlab.cli import main
from attnlab.evolution import OPERATORS, Involution2d, native_status
from attnlab.evolution.timing import timed


def test_lists_every_operator_and_the_path(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    main(["operators", "--channels", "16", "--size", "6", "--kernel-size", "3", "--batch", "1"])
    out = capsys.readouterr().out
    for name in OPERATORS:
        assert name in out
    assert str(native_status()) in out
    assert "attnlab.evolution.describe_operator(layer)" in out


def test_without_time(capsys):
    main(["operators", "--channels", "16", "--kernel-size", "3", "--no-time"])
    assert "forward" not in capsys.readouterr().out


def test_an_even_window_is_an_error(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["operators", "--kernel-size", "4"])
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith("attnlab: Expected --kernel-size to be odd but got 4")


def test_times_are_positive_and_leave_no_gradient():
    layer = Involution2d(16, 3)
    forward, both = timed(layer, torch.randn(1, 16, 6, 6), calls=1)
    assert forward > 0
    assert both > 0
    assert all(p.grad is None for p in layer.parameters())
