"""Data that are not what their folder or their labels seem to say: refused, or said in one line and
stored with the run."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.data.test_load import archive, load, pictures
from tests.lab.study._small import HereExecutor, small_study

import attnlab
from attnlab._errors import InputError, OptionError
from attnlab.data import DataConfig, load_named
from attnlab.data.own import load_own
from attnlab.lab.study import run_study, show_study
from attnlab.lab.study.show import study_footnotes
from attnlab.networks.preprocessing import Preprocessing
from attnlab.results.columns import StudyColumns
from attnlab.results.record import read_record

READ = ".jpg, .jpeg, .png, .bmp, .webp, .ppm, .pgm, .tif, .tiff"


def notes_of(root: Path, **settings: int) -> tuple[str, ...]:
    return load(name="folder", root=str(root), size=12, **settings).facts.notes


@pytest.mark.parametrize(
    ("labels", "found", "outputs", "free"),
    [
        ([1, 2, 3, 4] * 3, "1, 2, 3, 4", 5, "0"),
        ([0, 1, 2, 9] * 3, "0, 1, 2, 9", 10, "3, 4, 5, 6 and 2 more"),
    ],
)
def test_labels_with_a_gap_are_refused(
    labels: list[int], found: str, outputs: int, free: str, tmp_path: Path
) -> None:
    archive(tmp_path / "images.npz", train_y=np.array(labels), test_y=np.array([1, 2] * 3))
    with pytest.raises(InputError) as caught:
        load(name="npz", root=str(tmp_path / "images.npz"))
    assert str(caught.value) == (
        f"images.npz (train): labels {found} would make {outputs} classes, but no image has label "
        f"{free}. Expected classes that are numbered from 0 without a gap: "
        f"numpy.unique(labels, return_inverse=True) numbers them so."
    )


def test_a_known_set_may_lack_classes_and_says_so(tmp_path: Path) -> None:
    """Its number of classes is known, so labels of a part of it are not numbered wrongly."""
    archive(tmp_path / "cifar10.npz", train_y=np.arange(12) % 9, test_y=np.full(6, 3))
    facts = load(name="cifar10", root=str(tmp_path)).facts
    assert facts.outputs == 10
    assert facts.notes == (
        "1 of 10 classes has no training image: 9.",
        "9 of 10 classes have no test image: 0, 1, 2, 4 and 5 more.",
    )


def test_channels_first_are_refused(tmp_path: Path) -> None:
    archive(tmp_path / "images.npz", train_x=np.zeros((12, 3, 32, 32), np.uint8))
    with pytest.raises(InputError) as caught:
        load(name="npz", root=str(tmp_path / "images.npz"))
    assert str(caught.value) == (
        "images.npz (train): expected images N×H×W×C but got the shape (12, 3, 32, 32), which has "
        "its channels first. Store them as images.transpose(0, 2, 3, 1)."
    )


class ChannelsLast(torch.utils.data.Dataset):
    def __init__(self, train: bool) -> None:
        del train

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.zeros(8, 9, 3, dtype=torch.uint8), index


def test_channels_last_of_ones_own_data_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnlab.data.own.imported", lambda *_: ChannelsLast)
    with pytest.raises(InputError) as caught:
        load_own(DataConfig(name="mine.ChannelsLast"))
    assert str(caught.value) == (
        "mine.ChannelsLast: expected an image C×H×W but item 0 has the shape (8, 9, 3), which has "
        "its channels last. Return image.permute(2, 0, 1)."
    )


def test_hidden_and_empty_folders_are_not_classes(tmp_path: Path) -> None:
    pictures(tmp_path)
    assert notes_of(tmp_path) == ()
    shutil.copytree(tmp_path / "train" / "cat", tmp_path / "train" / ".ipynb_checkpoints")
    shutil.copytree(tmp_path / "train" / "cat", tmp_path / "val" / "dog" / ".ipynb_checkpoints")
    (tmp_path / "train" / "dog" / "._0.png").write_bytes(b"macOS")
    (tmp_path / "train" / "dog" / ".DS_Store").write_bytes(b"macOS")
    (tmp_path / "train" / "bird").mkdir()
    (tmp_path / "val" / "bird").mkdir()
    facts = load(name="folder", root=str(tmp_path), size=12).facts
    assert (facts.outputs, facts.train, facts.test) == (2, 8, 4)
    assert facts.notes == (
        "Hidden, so left out: train/.ipynb_checkpoints, train/dog/._0.png.",
        "Hidden, so left out: val/dog/.ipynb_checkpoints.",
        "Without a file, so not a class: train/bird.",
    )


def test_a_class_that_only_testing_has_is_refused(tmp_path: Path) -> None:
    """An empty folder in training does not hide its test images."""
    pictures(tmp_path)
    (tmp_path / "train" / "bird").mkdir()
    shutil.copytree(tmp_path / "val" / "dog", tmp_path / "val" / "bird")
    with pytest.raises(InputError, match="that the training images do not have: bird"):
        notes_of(tmp_path)


def test_files_that_are_not_read_are_counted(tmp_path: Path) -> None:
    pictures(tmp_path)
    picture = Image.new("RGB", (8, 8))
    for number in range(2):
        picture.save(tmp_path / "train" / "cat" / f"{number}.gif")
    (tmp_path / "train" / "dog" / "a.HEIC").write_bytes(b"")
    picture.save(tmp_path / "train" / "loose.png")
    assert notes_of(tmp_path) == (
        f"Not read in train: 3 files (2 .gif, 1 .heic). Images end in {READ}.",
        "In train but in no class, so left out: loose.png.",
    )


def test_a_class_of_unread_files_is_refused(tmp_path: Path) -> None:
    pictures(tmp_path)
    (tmp_path / "train" / "bird").mkdir()
    (tmp_path / "train" / "bird" / "a.heic").write_bytes(b"")
    with pytest.raises(InputError) as caught:
        notes_of(tmp_path)
    assert str(caught.value) == (
        f"{str(tmp_path / 'train' / 'bird')!r} has no image that is read: its files are .heic. "
        f"Expected files that end in {READ}: convert them, or take the folder out."
    )


def test_an_unused_folder_and_classes_that_a_subset_lacks(tmp_path: Path) -> None:
    pictures(tmp_path)
    shutil.copytree(tmp_path / "val", tmp_path / "test")
    assert notes_of(tmp_path, train_subset=1, test_subset=1) == (
        "The folder val is not used: testing is on the folder test.",
        "1 of 2 classes has no training image (train_subset = 1): dog.",
        "1 of 2 classes has no test image (test_subset = 1): dog.",
    )
    assert load(name="digits", train_subset=8, test_subset=10).facts.notes == (
        "2 of 10 classes have no training image (train_subset = 8): 4, 9.",
    )
    assert load(name="fake", train_subset=4, test_subset=4).facts.notes == ()


def test_photographs_and_undivided_folders(tmp_path: Path) -> None:
    root = tmp_path / "holiday"
    (root / ".cache").mkdir(parents=True)
    for number in range(5):
        Image.new("RGB", (64, 64), (number, 0, 0)).save(root / f"{number}.png")
        Image.new("RGB", (64, 64)).save(root / ".cache" / f"{number}.png")
    Image.new("RGB", (64, 64)).save(root / "a.gif")
    told = (
        "Hidden, so left out: .cache.",
        f"Not read in holiday: 1 file (1 .gif). Images end in {READ}.",
    )
    assert load(name="photos", root=str(root), size=32).facts.notes == told
    sizes = Preprocessing((3, 32, 32), (0.5,) * 3, (0.5,) * 3)
    facts = load_named(root, preprocessing=sizes).facts
    assert (facts.test, facts.notes) == (5, told)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"std": (-1.0,) * 3}, "std to be finite and above 0, for pixels from 0 to 1, but got [-1"),
        ({"std": (math.nan,) * 3}, "std to be finite and above 0, for pixels from 0 to 1, but got"),
        ({"mean": (math.nan,) * 3}, "mean to be from 0 to 1, for pixels from 0 to 1, but got [nan"),
        ({"mean": (-0.1,) * 3}, "mean to be from 0 to 1, for pixels from 0 to 1, but got [-0.1"),
        ({"mean": (123.7,) * 3}, "mean to be from 0 to 1, for pixels from 0 to 1, but got [123.7"),
    ],
)
def test_impossible_statistics_are_refused(given: dict[str, tuple[float, ...]], told: str) -> None:
    with pytest.raises(OptionError) as caught:
        attnlab.open("resnet20", data="digits", **given)
    assert str(caught.value).startswith(f"Expected {told}")


def test_notes_and_name_go_with_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Stored in the run; in the footnotes of the terminal, on the page; one name everywhere."""
    root = tmp_path / "pets"
    pictures(root)
    Image.new("RGB", (8, 8)).save(root / "train" / "cat" / "a.gif")
    study = small_study(
        data={"name": "folder", "root": str(root), "size": 12},
        attention=["none"],
        recipe={"name": "digits", "epochs": 2, "batch_size": 4},
        measure={"images": 4, "inference_images": 4},
        seeds=1,
    )
    out = tmp_path / "runs"
    outcomes = run_study(study, out, HereExecutor())
    assert [outcome.message for outcome in outcomes] == [""]
    note = f"Not read in train: 1 file (1 .gif). Images end in {READ}"
    stored = json.loads(next(out.glob("*/data.json")).read_text())
    assert stored["notes"] == [f"{note}."]
    assert stored["name"] == "pets"
    table = show_study(study, out)
    assert f"pets: {note}" in study_footnotes(table)
    (group,) = table.groups
    assert (group.data, group.name) == ("pets", "pets resnet20")
    columns = StudyColumns(table)
    assert columns.values().to_csv().splitlines()[1].startswith("pets,")
    record = read_record(out, study.name)
    assert record.name_of(group) == "pets"
    page = attnlab.report(out, tmp_path / "page.html").read_text(encoding="utf-8")
    assert note in page
    assert "resnet20 on pets" in page
    assert "folder resnet20" not in capsys.readouterr().out
    opened = attnlab.open("resnet20", data=str(root), num_classes=2, size=12)
    assert opened.notes[-1] == f"{note}."
