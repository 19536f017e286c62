"""`attnlab operators`."""

from __future__ import annotations

import sys

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


OWN = """
from torch import nn
from attnlab import evolution

class Function(evolution.KernelFunction):
    scope = "image"

    def __init__(self, *shape):
        super().__init__()
        self.shape = shape
        self.write = nn.Linear(shape[1], shape[0] * shape[1] * shape[2] * shape[3])

    def forward(self, x, window):
        weight = self.write(x.mean((2, 3))).view(-1, *self.shape)
        return evolution.SampleKernel(weight, window)

class Written(evolution.EvolutionConv2d):
    def __init__(self, in_channels, out_channels, kernel_size, **layer):
        size = evolution.Window.of(kernel_size).kernel_size
        function = Function(out_channels, in_channels, *size)
        super().__init__(in_channels, out_channels, kernel_size, function, **layer)
"""


def test_own_operators_are_shown_beside_the_others(capsys, tmp_path, monkeypatch):
    (tmp_path / "shown_operators.py").write_text(OWN)
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.setenv("COLUMNS", "200")
    size = ["--channels", "16", "--kernel-size", "3", "--no-time"]
    main(["operators", "shown_operators.Written", "--import-from", str(tmp_path), *size])
    out = capsys.readouterr().out
    kinds, costs = (each for each in out.splitlines() if each.strip().startswith("shown_operators"))
    assert kinds.split()[1:4] == ["image", "3×3", "pixels,"]
    assert costs.split() == ["shown_operators.Written", f"{16 * 16 * 9 * 17:,}"]
    assert "odconv" in out
    assert "operator_infos(['shown_operators.Written'])" in out


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["odconv"], "Those of attnlab are shown anyway"),
        (["attnlab.evolution.Nope"], "has no subclass of attnlab.evolution.Operator named 'Nope'"),
        (["a.B", "--device", "cpu"], "--device tries the kernels of attnlab"),
    ],
)
def test_what_is_no_operator_of_yours_is_an_error(capsys, given, said):
    with pytest.raises(SystemExit) as caught:
        main(["operators", *given, "--no-time"])
    assert caught.value.code == 2
    assert said in capsys.readouterr().err
