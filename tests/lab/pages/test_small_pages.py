"""Pages of a run, of classes and of several networks: what they say, from files made here."""

from __future__ import annotations

import html
import io
import json
import re
from base64 import b64decode
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import confusion_matrix, recall_score
from tests.lab.pages.simulated import prove, simulate

import attnlab
from attnlab.data.config import data_title
from attnlab.instruments.classes import measure_classes
from attnlab.instruments.classes.result import ClassesResult, all_seeds
from attnlab.instruments.stiffness.measure import stiffness
from attnlab.instruments.stiffness.page import names_of
from attnlab.lab.pages.run_page import is_run
from attnlab.page.rendering import bold, narrow
from attnlab.results.provenance import Provenance
from attnlab.results.record import read_record
from attnlab.results.study_cells import distinct_digits


def confusion() -> tuple[ClassesResult, np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    true = random.integers(0, 4, 200)
    predicted = np.where(random.random(200) < 0.7, true, random.integers(0, 4, 200))
    counts = confusion_matrix(true, predicted, labels=range(5))
    found = ClassesResult("a network", tuple("abcde"), tuple(map(tuple, counts.tolist())))
    return found, true, predicted


def test_shares_and_pairs_are_those_of_scikit_learn() -> None:
    found, true, predicted = confusion()
    recall = recall_score(true, predicted, average=None, labels=range(4), zero_division=np.nan)
    assert found.shares()[:4] == pytest.approx(recall.tolist())
    assert found.shares()[4] is None  # no image of it
    worst = found.mixed_up()[0]
    rates = confusion_matrix(true, predicted, labels=range(4), normalize="true")
    np.fill_diagonal(rates, 0)
    a, b = np.unravel_index(rates.argmax(), rates.shape)
    assert worst[:2] == ("abcd"[a], "abcd"[b])
    assert worst[2] == pytest.approx(rates[a, b])
    twice = all_seeds([found, found])
    assert np.array_equal(twice.confusion, 2 * np.array(found.confusion))
    least = int(recall.argmin())
    known = f"class {'abcd'[least]} is known least: {100 * recall[least]:.1f} %"
    assert known in found.in_words("se")
    assert known in found.verdict
    assert [row[1].text for row in found.table().rows] == [str(n) for n in found.images()]
    assert ClassesResult.from_json(found.to_json()) == found


def test_what_is_said_of_classes_by_hand() -> None:
    """Six cats, of which one is taken for a dog and two for an owl, four dogs and no owl."""
    found = ClassesResult("net", ("cat", "dog", "owl"), ((3, 1, 2), (0, 4, 0), (0, 0, 0)))
    assert found.verdict == (
        "Of net, class cat is known least: 50.0 % right, most often taken for owl (33 %)."
    )
    assert found.mixed_up() == [("cat", "owl", 2 / 6, 2), ("cat", "dog", 1 / 6, 1)]
    table = found.table()
    assert (table.columns, table.caption) == (["class", "images", "right %"], "net, class by class")
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["cat", "6", "50.0"],
        ["dog", "4", "100.0"],
        ["owl", "0", "—"],
    ]
    assert [row[2].order for row in table.rows[:2]] == [0.5, 1]
    sure = ClassesResult("net", ("cat", "dog"), ((2, 0), (0, 2)))
    assert sure.verdict == "Of net, class cat is known least: 100.0 % right."
    assert ClassesResult("net", ("cat",), ((0,),)).verdict == "There is no test image."
    others = replace(found, classes=("cat", "dog", "cow"))
    assert all_seeds([found, others, found]).confusion == ((6, 2, 4), (0, 8, 0), (0, 0, 0))
    with pytest.raises(ValueError, match="a number for every pair"):
        ClassesResult("net", ("cat", "dog"), ((3, 1), (0, 4, 0)))


@pytest.mark.parametrize(("number", "drawn"), [(40, True), (41, False)])
def test_the_matrix_of_many_classes_is_not_drawn(number: int, drawn: bool) -> None:
    counts = tuple(map(tuple, np.eye(number, dtype=int).tolist()))
    found = ClassesResult("net", tuple(f"class {n}" for n in range(number)), counts)
    assert list(found.figures()) == (["confusion"] if drawn else [])


class BrightIsOne(torch.nn.Module):
    """Calls an image "one" by its mean, the surer the brighter it is."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        bright = images.mean((1, 2, 3))
        return torch.stack([torch.zeros_like(bright), bright], 1)


def test_wrong_images_are_the_surest_ones(tmp_path: Path) -> None:
    levels = torch.linspace(0, 1, 20)
    images = (255 * levels).byte().numpy()[:, None, None, None].repeat(8, 1).repeat(8, 2)
    images = images.repeat(3, 3).copy()
    images[:, 0, 0] = 0  # so that no image is of one value
    truth = np.zeros(20, dtype=np.int64)
    truth[-3:] = 1
    np.savez(tmp_path / "levels.npz", train_x=images, train_y=truth, test_x=images, test_y=truth)
    subject = attnlab.open(BrightIsOne(), data=str(tmp_path / "levels.npz"))
    found = measure_classes(subject)
    scores = torch.cat([BrightIsOne()(batch.inputs) for batch in subject.batches()])
    chances, predicted = scores.softmax(1).max(1)
    expected = [n for n in chances.argsort(descending=True).tolist() if predicted[n] != truth[n]]
    assert len(expected) > 1
    assert [each.number for each in found.wrong] == expected[:12]
    assert [each.probability for each in found.wrong] == pytest.approx(
        chances[expected[:12]].tolist()
    )
    assert ClassesResult.from_json(found.to_json()) == found
    shown = Image.open(io.BytesIO(b64decode(found.wrong[0].png)))
    assert (shown.size, shown.getpixel((0, 0)), shown.getpixel((4, 4))) == (
        (8, 8),
        (0, 0, 0),
        (255, 255, 255),
    )


def test_every_field_of_the_matrix_says_its_counts() -> None:
    found, _, _ = confusion()
    svg = found.plot("confusion")
    counts = np.array(found.confusion)
    for a, b in ((0, 0), (1, 3)):
        text = f"{'abcde'[a]} taken for {'abcde'[b]}: {counts[a, b]} of {counts[a].sum()}"
        assert f'aria-label="{text}"' in svg


def test_the_page_of_a_run(tmp_path: Path) -> None:
    study = simulate(tmp_path, data=("cifar10",), gains={"se": 0.4}, seeds=2, epochs=4)
    entry = next(entry for entry in study.runs if entry.cell.row == "se")
    folder = tmp_path / entry.folder
    assert is_run(folder)
    assert not is_run(tmp_path)
    found, _, _ = confusion()
    content = {"measurement": "classes", "found": json.loads(found.to_json())}
    (folder / "measured" / "classes.json").write_text(json.dumps(content))
    prove(folder)
    page = attnlab.report(folder, tmp_path / "run.html").read_text(encoding="utf-8")
    text = html.unescape(page)
    result = json.loads((folder / "result.json").read_text())
    shown = f"{100 * result['values']['top1']:.2f} %"
    assert f"top-1 <strong>{shown}</strong> on the test images after 4 epochs" in text
    assert "One seed says nothing about chance" in text
    assert "Which classes does it know?" in text
    assert "secret-host" not in text


def test_the_page_of_a_run_that_is_not_finished(tmp_path: Path) -> None:
    study = simulate(tmp_path, data=("cifar10",), gains={"se": 0.4}, seeds=2, epochs=4)
    folder = tmp_path / study.runs[0].folder
    (folder / "result.json").unlink()
    (folder / "failure.json").write_text(json.dumps({"error": "no disk", "when": 0.0}))
    text = attnlab.report(folder, tmp_path / "run.html").read_text(encoding="utf-8")
    assert "Not finished: 4 epochs are done." in text
    assert "no disk" in text


def test_networks_get_names_that_tell_them_apart() -> None:
    def result(gate: str = "", weights: str = "w/a.pt", network: str = "resnet20"):
        return replace(some, network=network, provenance=Provenance(network, gate, weights))

    some = stiffness(attnlab.create("resnet20"), [torch.randn(1, 3, 32, 32)], progress=False)
    assert names_of([result(), result("se")]) == ["resnet20", "resnet20 with se"]
    assert names_of([result(), result(weights="")]) == ["resnet20, a.pt", "resnet20, random"]
    assert names_of([result(), result()]) == ["resnet20, a.pt (1)", "resnet20, a.pt (2)"]
    unknown = [replace(some, network=name) for name in ("a", "b")]
    assert names_of(unknown) == ["a", "b"]


def test_macs_have_digits_enough_to_differ() -> None:
    assert distinct_digits([2.551424, 2.553440]) == 3
    assert distinct_digits([40.813184, 40.813200]) == 5
    assert distinct_digits([1.0, 1.0]) == 3


def test_data_are_called_by_their_own_name(tmp_path: Path) -> None:
    assert data_title("folder", "/some/photos") == "photos"
    assert data_title("npz", "cells.npz") == "cells"
    assert data_title("digits", None) == "digits"
    study = simulate(tmp_path, data=("cifar10",), gains={"se": 0.4}, seeds=2, epochs=4)
    record = read_record(tmp_path, study.name)
    (group,) = record.table.groups
    assert record.name_of(group) == "cifar10"


def test_narrow_figures_and_code() -> None:
    assert narrow({"width": 620, "mark": "point"}) == {"width": 235, "mark": "point"}
    assert narrow({"width": 200}) is None
    assert narrow({"width": {"step": 20}}) is None
    assert str(bold("run `a <b>`")) == "run <code>a &lt;b&gt;</code>"


def test_a_finding_has_its_number_and_interval(tmp_path: Path) -> None:
    study = simulate(tmp_path, data=("cifar10",), gains={"se": 0.4}, seeds=3, epochs=4)
    page = attnlab.report(tmp_path, tmp_path / "page.html").read_text(encoding="utf-8")
    record = read_record(tmp_path, study.name)
    (compared,) = (r.comparison for g in record.table.groups for r in g.rows if r.comparison)
    low, high = (f"{v:+.2f}".replace("-", "−") for v in (compared.low, compared.high))
    mean = f"{compared.difference.mean:+.2f}".replace("-", "−")
    assert f"<strong>se</strong> {mean} points [{low}, {high}]: {compared.verdict}" in page
    assert re.search(rf"<h1>{re.escape(study.title)}</h1>", page)
