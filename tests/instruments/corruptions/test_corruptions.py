"""Corrupted images of a finished run: figures by hand, the study's table and its page."""

from __future__ import annotations

import html
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
import torch
from scipy import stats
from tests.lab.study._small import HereExecutor
from tests.lab.training.small import run, small
from torch import Tensor, nn

import attnlab
from attnlab._errors import OptionError
from attnlab.data import load_data
from attnlab.data.corruptions import CORRUPTIONS, CorruptedData
from attnlab.instruments.corruptions import CorruptionsResult, measure_corruptions
from attnlab.instruments.measurement import MeasureConfig
from attnlab.lab.measures import measure_run, missing
from attnlab.lab.study import Study, run_study
from attnlab.results import StoredRun
from attnlab.results.study import read_table
from attnlab.subject import load_network

ONLY = MeasureConfig(images=0, inference_images=0, corruptions=20)


def by_hand(folder: Path, corruption: str | None, strength: int = 5) -> dict[str, float]:
    """top-1, ECE by 15 bins written out, mean negative log-likelihood."""
    data = load_data(small(1).data)
    if corruption is not None:
        data = CorruptedData(data, corruption, strength)
    chosen = torch.linspace(0, 29, 20).round().long()
    batch = next(data.testing([chosen], torch.device("cpu")))
    with torch.no_grad():
        probability = load_network(folder)(batch.inputs).double().softmax(1)
    confidence, guess = probability.max(1)
    right = (guess == batch.targets).double()
    bins = (confidence * 15).ceil().clamp(1, 15)
    ece = sum(
        float(
            (bins == b).double().mean()
            * (right[bins == b].mean() - confidence[bins == b].mean()).abs()
        )
        for b in bins.unique()
    )
    nll = -probability[torch.arange(20), batch.targets].log().mean()
    return {"top1": float(right.mean()), "ece": ece, "nll": float(nll)}


def test_figures_of_a_run(tmp_path: Path) -> None:
    run(small(2), tmp_path)
    assert "corruptions" not in missing(tmp_path)
    assert "corruptions" in missing(tmp_path, ONLY)
    measure_run(tmp_path, ONLY, only=["corruptions"])
    found = StoredRun(tmp_path).measured_result(CorruptionsResult)
    assert found is not None
    assert found.images == 20
    assert vars(found.clean) == pytest.approx(by_hand(tmp_path, None), rel=1e-4)
    assert len(found.rows) == 5 * len(CORRUPTIONS)
    (row,) = [r for r in found.rows if (r.corruption, r.strength) == ("impulse_noise", 5)]
    expected = by_hand(tmp_path, "impulse_noise")
    assert {key: vars(row)[key] for key in expected} == pytest.approx(expected, rel=1e-4)
    for figure, mean in vars(found.mean).items():
        assert mean == pytest.approx(fmean(getattr(r, figure) for r in found.rows)), figure
    assert found.verdict.startswith(f"top-1 {100 * found.clean.top1:.2f} % of clean images")
    assert len(found.table().rows) == 2 + len(found.rows)
    # The same of the run, opened: what a study stores is what the instrument finds.
    again = measure_corruptions(attnlab.open(tmp_path, limit=20))
    assert (again.clean, again.mean, again.rows) == (found.clean, found.mean, found.rows)
    with pytest.raises(OptionError, match="test images"):
        measure_corruptions(attnlab.open(tmp_path, part="train"))


class Sure(nn.Module):
    """Says the first class, of bright images with 0.935 and of dark ones with 0.92."""

    def forward(self, images: Tensor) -> Tensor:
        sure = torch.where(images.mean((1, 2, 3)) > 0.3, 0.935, 0.92)
        return torch.stack([sure.log(), (1 - sure).log()], 1)


def test_confidence_is_compared_in_fifteen_bins(tmp_path: Path) -> None:
    """The two lie on both sides of 14/15, and in one of sixteen bins."""
    images = np.full((8, 8, 8, 3), 50, dtype=np.uint8)
    images[4:] = 200
    images[:, 0, 0] = 0  # so that no image is of one value
    truth = np.repeat([0, 1], 4)
    file = tmp_path / "images.npz"
    np.savez(file, train_x=images, train_y=truth, test_x=images, test_y=truth)
    found = measure_corruptions(attnlab.open(Sure(), data=str(file)))
    assert found.clean.top1 == 0.5
    assert found.clean.ece == pytest.approx((0.08 + 0.935) / 2, rel=1e-5)


def test_other_tasks_are_told_so(tmp_path: Path) -> None:
    data = {"name": "digit-angles", "train_subset": 32, "test_subset": 16}
    run(small(1, {"lr": 1e-4}, data=data, task="regression"), tmp_path)
    found = measure_run(tmp_path, ONLY, only=["corruptions"])["corruptions"]
    assert found.found is None
    assert found.notes == ("Corruptions are measured of networks that tell classes apart.",)


def test_a_study_pairs_the_figures_by_seed(tmp_path: Path) -> None:
    study = Study(
        name="robust",
        data={"name": "digits", "train_subset": 60, "test_subset": 30},  # type: ignore[arg-type]
        backbone="resnet20",  # type: ignore[arg-type]
        attention=["none", "se"],  # type: ignore[arg-type]
        seeds=2,  # type: ignore[arg-type]
        recipe={"name": "digits", "epochs": 1, "warmup_epochs": 0, "batch_size": 16},
        measure=ONLY,
    )
    run_study(study, tmp_path, HereExecutor())
    (group,) = read_table(tmp_path / "studies" / "robust").groups
    plain, se = group.rows
    figure = se.beside["mean_nll"]
    assert plain.beside["mean_nll"].difference is None
    values = []
    for row in (plain, se):
        folders = [
            each
            for each in tmp_path.iterdir()
            if (each / "measured" / "corruptions.json").is_file()
        ]
        gate = "none" if row.plain else "se"
        own = {
            StoredRun(f).config.seed: StoredRun(f).measured("corruptions")
            for f in folders
            if StoredRun(f).config.attention == gate
        }
        values.append([own[seed].found["mean"]["nll"] for seed in (0, 1)])  # type: ignore[union-attr, index]
    differences = [b - a for a, b in zip(*values, strict=True)]
    assert figure.difference is not None
    assert figure.difference.mean == pytest.approx(sum(differences) / 2)
    low, _ = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert figure.difference.low == pytest.approx(low)
    page = attnlab.report(tmp_path, tmp_path / "page.html")
    text = html.unescape(page.read_text(encoding="utf-8"))
    assert "Does it hold on corrupted images?" in text
    assert "impulse noise" in text
