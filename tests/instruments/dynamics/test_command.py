"""`attnlab dynamics`: tables, caveats and figures."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import numpy as np

from attnlab.cli import main
from attnlab.instruments.dynamics import figures
from attnlab.instruments.dynamics.theorem2 import RankCorrelation, decay
from attnlab.page.plot import to_svg


def test_three_body_command(capsys, tmp_path):
    main(["dynamics", "three-body", "--trajectories", "20", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "consistent, not confirmed" in printed
    assert "encounter_statistics(20, seed=0)" in printed
    ElementTree.parse(tmp_path / "encounters.svg")
    assert [path.name for path in tmp_path.iterdir()] == ["encounters.svg"]


def test_figures_render_with_their_values():
    assert "SAI / SI" in to_svg(figures.decay_figure(decay(11)))
    svg = to_svg(figures.rank_figure([RankCorrelation("Robertson", -0.98, -0.98, 9.8e3)]))
    assert "Robertson" in svg
    assert "−0.98" in svg
    assert "2 trajectories" in to_svg(figures.encounter_figure(np.array([0.0, 0.1])))
