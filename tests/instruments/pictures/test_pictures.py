"""Pictures of finished networks: kept beside a run, and made of the user's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import attnlab
from attnlab._errors import FoldError, InputError, OptionError
from attnlab.data import load_data
from attnlab.instruments.measurement import MeasureConfig
from attnlab.instruments.pictures import PicturesResult, draw_pictures
from attnlab.lab.measures import apply_run, measure_run, missing
from attnlab.lab.training import RunConfig, load_network, train
from attnlab.results import StoredRun

MEAN, STD = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
WANTED = MeasureConfig(images=0, inference_images=0, pictures=8)


def trained(folder: Path, **settings: object) -> Path:
    given = {
        "task": "style-filters",
        "data": {"name": "photos", "size": 24},
        "backbone": "fast_style",
        "backbone_options": {"width": 4, "blocks": 1, "norm": "batch"},
        "attention": "asr:se",
        "recipe": {"name": "style", "epochs": 1, "warmup_epochs": 0},
    }
    train(RunConfig(**{**given, **settings}), folder, threads=1, progress=lambda _: None)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("runs") / "run")


def read(file: Path) -> np.ndarray:
    with Image.open(file) as picture:
        return np.asarray(picture).astype(int)


def by_hand(network: nn.Module, pixels: np.ndarray) -> np.ndarray:
    """H×W×3 bytes to bytes."""
    given = (pixels / 255 - np.array(MEAN)) / np.array(STD)
    images = torch.from_numpy(given).float().permute(2, 0, 1)[None]
    with torch.no_grad():
        made = network(images)[0].permute(1, 2, 0).numpy()
    return np.rint(255 * made).astype(int)


def test_pictures_of_a_run(run: Path) -> None:
    assert missing(run, WANTED) == ["fold", "pictures"]
    measure_run(run, WANTED)
    assert missing(run, WANTED) == []
    found = StoredRun(run).measured_result(PicturesResult)
    assert found is not None
    assert len(found.pictures) == 2  # as many as there are
    network = load_network(run)
    for place, picture in enumerate(found.pictures):
        image = read(run / picture.input)
        data = load_data(RunConfig.from_json((run / "config.json").read_text()).data)
        given = next(data.testing([torch.tensor([place])], torch.device("cpu"))).inputs[0]
        shown = (given * torch.tensor(STD).view(3, 1, 1) + torch.tensor(MEAN).view(3, 1, 1)) * 255
        assert np.abs(shown.permute(1, 2, 0).numpy() - image).max() < 1e-2
        assert np.abs(read(run / picture.output) - by_hand(network, image)).max() <= 1
        assert picture.folded is not None
        assert np.abs(read(run / picture.folded) - read(run / picture.output)).max() <= 1
    assert found.folded_change is not None
    assert 0 < found.folded_change < 1e-6


def test_pictures_of_a_subject_are_those_of_the_run(run: Path, tmp_path: Path) -> None:
    found = draw_pictures(run, tmp_path)
    assert found.verdict.startswith("2 pictures. By the folded network: max |Δ| ")
    assert sorted(found.files()) == sorted(
        str(file.relative_to(tmp_path)) for file in (tmp_path / "pictures").iterdir()
    )
    assert [row[0].text for row in found.table().rows] == [p.input for p in found.pictures]
    measure_run(run, WANTED, ["pictures"])
    for name in found.files():
        assert (tmp_path / name).read_bytes() == (run / name).read_bytes()


def test_pictures_are_made_one_at_a_time(run: Path, tmp_path: Path) -> None:
    subject, sizes = attnlab.open(run), []
    subject.network.register_forward_pre_hook(lambda _, given: sizes.append(len(given[0])))
    draw_pictures(subject, tmp_path)
    assert sizes
    assert set(sizes) == {1}


def test_why_a_run_is_not_folded(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first line of what the fold says, for the pictures and for the receipt."""

    def refuse(*_: object, **__: object) -> None:
        raise FoldError("No gate folds:\n  1.0: it varies.")

    monkeypatch.setattr("attnlab.instruments.pictures.measure.fold", refuse)
    monkeypatch.setattr("attnlab.lab.measures.run.fold", refuse)
    found = measure_run(run, WANTED, ["pictures", "fold"])
    assert found["fold"].found is None
    pictures = found["pictures"].found
    assert pictures is not None
    assert pictures["folded_change"] is None
    assert [each["folded"] for each in pictures["pictures"]] == [None, None]
    for each in found.values():
        assert each.notes == ("Not folded: No gate folds:",)
    measure_run(run, WANTED, ["pictures", "fold"])


def test_tasks_without_pictures(tmp_path: Path) -> None:
    data = {"name": "digits", "train_subset": 40, "test_subset": 20}
    recipe = {"name": "digits", "epochs": 1, "warmup_epochs": 0, "batch_size": 20}
    folder = trained(
        tmp_path / "run",
        task="classification",
        data=data,
        backbone="resnet20",
        backbone_options={},
        attention="none",
        recipe=recipe,
    )
    found = measure_run(folder, WANTED, ["pictures"])["pictures"]
    assert (found.found, found.notes) == (None, ("The task Classification makes no pictures.",))
    assert StoredRun(folder).measured_result(PicturesResult) is None
    Image.new("RGB", (32, 32)).save(tmp_path / "a.png")
    with pytest.raises(InputError) as refused:
        apply_run(folder, [tmp_path / "a.png"], tmp_path)
    assert str(refused.value) == (
        f"{str(folder)!r} is a run of the task Classification, which makes no pictures. Expected "
        f"one of `attnlab style train` or of a study of style transfer."
    )


def test_apply(run: Path, tmp_path: Path) -> None:
    made = np.random.default_rng(0).integers(0, 256, (21, 34, 3), dtype=np.uint8)
    Image.fromarray(made).save(tmp_path / "noise.png")
    (done,) = apply_run(run, [tmp_path / "noise.png"], tmp_path / "out")
    assert done.written == tmp_path / "out" / "noise.png"
    assert np.abs(read(done.written) - by_hand(load_network(run), made)).max() <= 1
    assert done.folded == tmp_path / "out" / "noise-folded.png"
    assert done.folded_change is not None
    assert 0 < done.folded_change < 1e-6
    assert np.abs(read(done.folded) - read(done.written)).max() <= 1
    (larger,) = apply_run(run, [tmp_path / "noise.png"], tmp_path / "out", size=42)
    assert read(larger.written).shape == (42, 68, 3)


def test_apply_refuses(run: Path, tmp_path: Path) -> None:
    def message(*names: str, **options: int) -> str:
        with pytest.raises((InputError, OptionError)) as refused:
            apply_run(run, [tmp_path / name for name in names], tmp_path / "out", **options)
        return str(refused.value)

    small = tmp_path / "small.png"
    Image.new("RGB", (40, 9)).save(small)
    assert message("gone.png") == (
        f"There is no picture {str(tmp_path / 'gone.png')!r}. Expected image files."
    )
    assert message("small.png") == (
        f"{str(small)!r}: FastStyle: expected images of at least 16×16 but got 9×40. Enlarge them "
        f"first."
    )
    assert message("small.png", size=0) == "Expected size to be at least 1 but got 0."
    assert message() == "Expected at least one picture but got none."
    Image.new("RGB", (40, 40)).save(tmp_path / "small.jpg")
    assert message("small.png", "small.jpg") == (
        "Two of the pictures would be written to small.png. Give them one after the other, to "
        "different folders."
    )
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match=r"config.json'?, so .* is not a run's folder"):
        apply_run(tmp_path, [small], tmp_path / "out")
