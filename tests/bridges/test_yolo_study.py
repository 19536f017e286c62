"""Runs of a study that Ultralytics trains: they are its own trainings, to the bit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.detection import written
from tests.tools.forked import forking

from attnlab import AttnlabError
from attnlab.bridges.yolo_study.folder import data_folder
from attnlab.bridges.yolo_study.offline import offline
from attnlab.data import DataConfig, load_data
from attnlab.data.boxes import BoxData
from attnlab.lab.training import RunConfig, train
from attnlab.lab.training.evaluate import evaluate
from attnlab.results import StoredRun
from attnlab.subject import open_run
from attnlab.subject.building import build_network
from attnlab.subject.run import load_network
from attnlab.surgery.insertion import attachments
from attnlab.tasks import build_task

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # theirs
    pytest.mark.usefixtures("ultralytics", "cache"),
]
SETTINGS = {"optimizer": "SGD", "close_mosaic": 1, "nbs": 16, "warmup_epochs": 1.0}
TIMES = ("train_seconds", "data_seconds", "images_per_second", "seconds")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory, ultralytics: Any) -> Iterator[Path]:
    """Images are written to a folder of the test."""
    assert ultralytics.__version__
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


def config(gate: str = "se", epochs: int = 2, images: int = 10, **settings: Any) -> RunConfig:
    return RunConfig(
        task={"name": "ultralytics", "options": {"imgsz": 32, **SETTINGS, **settings}},
        data={"name": "shapes", "size": 32, "train_subset": images, "test_subset": 4},
        backbone="ultralytics:yolov8n",
        attention=gate,
        recipe={"name": "ultralytics", "epochs": epochs, "batch_size": 4},
        seed=1,
    )


def lines(folder: Path) -> list[dict[str, Any]]:
    """What is known of each epoch, without times."""
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: line[name] for name in line if name not in TIMES} for line in found]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    assert cache.is_dir()
    folder = tmp_path_factory.mktemp("runs") / "run"
    threads = torch.get_num_threads()
    train(config(), folder, threads=1, progress=lambda _: None)
    assert torch.get_num_threads() == threads
    return folder


def by_hand(network: torch.nn.Module, folder: Path, data: Path) -> tuple[list[Any], Any]:
    """Ultralytics' trainer with the same settings: the figures of each epoch, and its average."""
    from ultralytics.models.yolo.detect import DetectionTrainer

    trainer = DetectionTrainer(
        overrides={
            "task": "detect",
            "model": "yolov8n.yaml",
            "data": str(data),
            "imgsz": 32,
            "epochs": 2,
            "batch": 4,
            "seed": 1,
            "patience": 0,
            "plots": False,
            "project": str(folder),
            **SETTINGS,
        }
    )
    torch.set_num_threads(1)
    trainer.model = network
    found: list[Any] = []

    def ended(trainer: Any) -> None:
        if len(found) < 2:  # their last validation, of the best epoch, calls this too
            found.append({**trainer.metrics, **{k: float(v) for k, v in trainer.tloss.items()}})

    trainer.add_callback("on_fit_epoch_end", ended)
    trainer.train()
    return found, trainer.ema.ema


@pytest.mark.slow  # two trainings
def test_a_run_is_ultralytics_own_training_to_the_bit(run: Path, tmp_path: Path) -> None:
    settings = config()
    data = load_data(settings.data)
    task = build_task(settings.task, data.facts)
    network = build_network(settings, task)
    threads = torch.get_num_threads()
    figures, average = by_hand(network, tmp_path, task.prepared(data).source)  # type: ignore[attr-defined]
    torch.set_num_threads(threads)
    state = load_network(run).state_dict()
    expected = average.float().state_dict()
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name], expected[name]) for name in state)
    for line, theirs in zip(lines(run), figures, strict=True):
        assert line["test"]["ap"] == theirs["metrics/mAP50-95(B)"]
        assert line["test"]["ap50"] == theirs["metrics/mAP50(B)"]
        assert line["loss_parts"] == {k: v for k, v in theirs.items() if k in line["loss_parts"]}


def test_the_record_is_that_of_any_run(run: Path) -> None:
    stored = StoredRun(run)
    assert stored.is_trained
    assert [metric.label for metric in stored.result.metrics[:2]] == ["AP50-95", "AP50"]
    assert stored.result.epochs == 2
    assert stored.result.sites == len(list(attachments(load_network(run)))) > 0
    assert [file.name for file in (run / "trainer" / "ultralytics").iterdir()] == ["args.yaml"]
    assert train(config(), run, threads=1) == stored.result  # not trained again


def test_a_measurement_afterwards_has_the_figures_of_the_validation(run: Path) -> None:
    subject = open_run(run)
    for size in (8, subject.batch_size):
        found = evaluate(subject.network, subject.learned(), subject.images(), size, subject.device)
        assert found == pytest.approx(lines(run)[-1]["test"], abs=6e-6)  # they round to 5 digits


def test_the_log_says_which_gates_are_in_the_trainers_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for gate, said in (
        ("none", "the network that Ultralytics trains has no gate\n"),
        ("eca", "gates (EfficientChannelAttention) at model.2.m.0.cv2, "),
    ):
        with pytest.raises(_Enough):
            train(config(gate, 1, 4), tmp_path / gate, threads=1, each_epoch=_enough)
        assert said in capsys.readouterr().out


class _Enough(BaseException):
    """Raised when enough was seen: their programs catch exceptions."""


def _enough(*_: object) -> dict[str, object]:
    raise _Enough


def test_the_order_of_the_data_and_what_is_shared_do_not_depend_on_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ultralytics.models.yolo.detect import DetectionTrainer

    seen: dict[str, list[Any]] = {}
    gate = "none"
    before = DetectionTrainer.preprocess_batch

    def watched(trainer: Any, batch: Any) -> Any:
        seen.setdefault(gate, []).append((batch["im_file"], batch["img"].clone()))
        return before(trainer, batch)

    monkeypatch.setattr(DetectionTrainer, "preprocess_batch", watched)
    starts = {}
    for gate in ("none", "se"):
        settings = config(gate, 1)
        task = build_task(settings.task, load_data(settings.data).facts)
        starts[gate] = build_network(settings, task).state_dict()
        with pytest.raises(_Enough):
            train(settings, tmp_path / gate, threads=1, each_epoch=_enough)
    assert [files for files, _ in seen["none"]] == [files for files, _ in seen["se"]]
    for (_, one), (_, other) in zip(seen["none"], seen["se"], strict=True):
        assert torch.equal(one, other)
    assert all(torch.equal(starts["se"][name], each) for name, each in starts["none"].items())


LOADED = ("ultralytics.models.yolo.detect", "attnlab.lab.training.loop")
KILLED = """
import os, signal, sys
from tests.bridges.test_yolo_study import config
from attnlab.lab.training import train

def ended(record):
    if record.epoch == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

settings = config(epochs=5, images=int(sys.argv[3]), close_mosaic=2)
train(settings, sys.argv[1], threads=1, progress=ended)
"""


@pytest.mark.slow  # trainings in eight processes
@pytest.mark.parametrize(
    ("images", "kills"),
    [
        (8, (1, 3, 4)),  # whole batches; before, at and after the epoch in which mosaics end
        (10, (2,)),  # a last batch of two, and gradients that wait for a step
    ],
)
def test_a_killed_run_goes_on_to_the_bit(
    images: int, kills: tuple[int, ...], tmp_path: Path
) -> None:

    def attempt(folder: Path, last: int) -> int:
        return forking(*LOADED).run(KILLED, str(folder), str(last), str(images)).code

    assert attempt(tmp_path / "whole", 99) == 0
    for last in kills:
        assert attempt(tmp_path / "killed", last) == -9
    assert attempt(tmp_path / "killed", 99) == 0
    one, other = (load_network(tmp_path / name).state_dict() for name in ("whole", "killed"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert lines(tmp_path / "whole") == lines(tmp_path / "killed")


def test_rectangles_train_and_go_on_to_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`rect`: no mosaics, and images in the same order in every epoch, those of like shape
    together."""
    from ultralytics.models.yolo.detect import DetectionTrainer

    written.write_yolo(tmp_path / "data")
    for number, (width, height) in enumerate(((64, 32), (32, 64))):
        written.write_image(tmp_path / "data/images/train" / f"{number}.png", width, height)
        (tmp_path / "data/labels/train" / f"{number}.txt").write_text("0 0.5 0.5 0.4 0.4\n")
    given = config(epochs=3, rect=True, imgsz=96).model_dump(exclude={"data"})
    given["recipe"] = {"name": "ultralytics", "epochs": 3, "batch_size": 2}
    settings = RunConfig(**given, data={"name": "yolo", "root": str(tmp_path / "data")})
    seen = []
    before = DetectionTrainer.preprocess_batch

    def watched(trainer: Any, batch: Any) -> Any:
        seen.append(batch["im_file"])
        return before(trainer, batch)

    monkeypatch.setattr(DetectionTrainer, "preprocess_batch", watched)
    train(settings, tmp_path / "whole", threads=1, progress=lambda _: None)
    assert len(seen) == 6
    assert seen[:2] == seen[2:4] == seen[4:]

    def ended(record: Any) -> None:
        if record.epoch == 1:
            raise _Enough

    with pytest.raises(_Enough):
        train(settings, tmp_path / "killed", threads=1, progress=ended)
    train(settings, tmp_path / "killed", threads=1, progress=lambda _: None)
    one, other = (load_network(tmp_path / name).state_dict() for name in ("whole", "killed"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert lines(tmp_path / "whole") == lines(tmp_path / "killed")


NO_NETWORK = """
import socket, sys

def refuse(*arguments, **_):
    raise SystemExit(f"a connection was tried: {arguments}")

socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
from tests.bridges.test_yolo_study import config
from attnlab.lab.training import train

train(config("none", 1, 4), sys.argv[1], threads=1, progress=lambda _: None)
from ultralytics import SETTINGS
print(SETTINGS.file)
"""


@pytest.mark.slow
def test_nothing_goes_over_the_network_and_no_settings_of_the_user_are_touched(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    environment = {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PATH": "/usr/bin:/bin",
    }
    done = subprocess.run(
        [sys.executable, "-c", NO_NETWORK, str(tmp_path / "run")],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith(str(tmp_path / "cache" / "attnlab"))
    assert not (home / ".config" / "Ultralytics").exists()


def test_settings_that_were_imported_before_are_off_and_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ultralytics import SETTINGS, utils

    from attnlab.bridges.yolo_study.offline import offline

    dict.update(SETTINGS, {"sync": True, "mlflow": True})
    monkeypatch.setattr(utils, "ONLINE", True)
    file = SETTINGS.file.read_bytes()
    with offline():
        assert not SETTINGS["sync"]
        assert not SETTINGS["mlflow"]
        assert not utils.ONLINE
    assert SETTINGS["sync"]
    assert SETTINGS["mlflow"]
    assert utils.ONLINE
    assert SETTINGS.file.read_bytes() == file


def test_the_folder_has_the_boxes_and_the_pixels(cache: Path) -> None:
    data = load_data(config().data)
    assert isinstance(data, BoxData)
    from attnlab.bridges.yolo_study.folder import data_folder

    folder = data_folder(data)
    assert folder.is_relative_to(cache)
    for part, images in (("train", data.train), ("val", data.test)):
        for number, image in enumerate(images):
            pixels = np.asarray(Image.open(folder / "images" / part / f"{number:07d}.png"))
            assert (pixels == image.pixels().permute(1, 2, 0).numpy()).all()
            text = (folder / "labels" / part / f"{number:07d}.txt").read_text()
            rows = torch.tensor([[float(v) for v in line.split()] for line in text.splitlines()])
            assert (rows[:, 0].long() + 1).tolist() == image.target["labels"].tolist()
            x, y, w, h = (32 * rows[:, 1:]).unbind(1)
            boxes = torch.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], 1)
            assert torch.allclose(boxes, image.target["boxes"], atol=1e-4)


@pytest.mark.parametrize(
    "names",
    [
        ('it\'s "x"', "no", "1"),
        ("c: d", "#e", "- f"),
        ("🐕", "ß ü", "a\\nb"),
        ("a\nb", "\u200bz", "tab\there"),
        ("", " ", "{x}"),
    ],
)
def test_ultralytics_reads_names_of_classes_as_they_are(names: tuple[str, ...]) -> None:
    boxes = load_data(config().data)
    assert isinstance(boxes, BoxData)
    boxes.facts = replace(boxes.facts, categories=names)
    with offline():
        from ultralytics.data.utils import check_det_dataset

        found = check_det_dataset(str(data_folder(boxes) / "data.yaml"))
    assert tuple(found["names"].values()) == names


def test_the_folder_has_a_photograph_that_exif_turns_as_it_is_shown(
    cache: Path, tmp_path: Path
) -> None:
    from attnlab.bridges.yolo_study.folder import data_folder

    assert cache.is_dir()
    written.write_yolo(tmp_path)
    shown = np.zeros((40, 60, 3), np.uint8)
    shown[5:15, 10:30] = 255
    exif = Image.Exif()
    exif[274] = 6  # turned to the right before it is shown
    Image.fromarray(np.rot90(shown).copy()).save(tmp_path / "images/train/a.png", exif=exif)
    whole = {"crop": "none", "flip": False}
    data = load_data(DataConfig(name="yolo", root=str(tmp_path), augmentation=whole))
    assert isinstance(data, BoxData)
    folder = data_folder(data)
    with Image.open(folder / "images" / "train" / "0000000.png") as image:
        assert (np.asarray(image) == shown).all()
    line = (folder / "labels" / "train" / "0000000.txt").read_text().splitlines()[0]
    x, y, w, h = (float(word) for word in line.split()[1:])
    assert (x * 60, y * 40, w * 60, h * 40) == pytest.approx((20, 10, 20, 10), abs=1e-4)


def test_files_that_ultralytics_reads_are_linked_and_others_are_written(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from attnlab.bridges.yolo_study.folder import data_folder

    assert cache.is_dir()
    monkeypatch.setattr("attnlab.data.box_load.MEMORY_LIMIT", 0)  # or they are read at once
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    images, labels = tmp_path / "images" / "train", tmp_path / "labels" / "train"
    images.mkdir(parents=True)
    labels.mkdir(parents=True)
    turned = Image.Exif()
    turned[274] = 3
    Image.fromarray(pixels).save(images / "a.jpg")
    Image.fromarray(pixels[:, :, 0]).save(images / "b.png")  # grey
    Image.fromarray(pixels).save(images / "c.PNG")
    Image.fromarray(pixels).save(images / "d.png", exif=turned)
    for name in "abcd":
        (labels / f"{name}.txt").write_text("0 0.5 0.5 0.5 0.5\n")
    (tmp_path / "data.yaml").write_text("train: images/train\nval: images/train\nnames: [car]\n")
    data = load_data(
        DataConfig(name="yolo", root=str(tmp_path), augmentation={"crop": "none", "flip": False})
    )
    assert isinstance(data, BoxData)
    found = sorted((data_folder(data) / "images" / "train").iterdir())
    assert [file.name for file in found] == [
        "0000000.jpg",
        "0000001.png",
        "0000002.png",
        "0000003.png",
    ]
    assert [file.is_symlink() for file in found] == [True, False, True, False]
    assert [found[0].readlink(), found[2].readlink()] == [
        (images / "a.jpg").resolve(),
        (images / "c.PNG").resolve(),
    ]


def test_images_that_are_gone_are_not_left_out_silently() -> None:
    data = load_data(config(images=6).data)
    task = build_task(config(images=6).task, data.facts)
    prepared = task.prepared(data)
    next((prepared.folder / "images" / "val").iterdir()).unlink()  # type: ignore[attr-defined]
    with pytest.raises(AttnlabError, match="Ultralytics reads 3 of 4 val images in"):
        list(prepared.testing([torch.arange(4)], torch.device("cpu")))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"lr_0": 0.1},
            "Task 'ultralytics' has no option 'lr_0'. Did you mean 'lr0' or 'lrf'? It takes: ",
        ),
        ({"batch": 3}, "decided by epochs and batch_size of the recipe."),
        ({"patience": 3}, "it is no setting: all runs of a study have the same number of epochs."),
        ({"mosaic": 2.0}, "Task 'ultralytics': 'mosaic=2.0' is an invalid value."),
        (
            {"imgsz": 33},
            "Expected imgsz to be a multiple of 32 but got 33: Ultralytics would take 64.",
        ),
        ({"imgsz": True}, "Expected imgsz to be a multiple of 32 but got True"),
        ({"imgsz": 48.0}, "got 48.0: Ultralytics would take 64."),
        (
            {"tracker": "x"},
            "Task 'ultralytics' takes no 'tracker', a setting of Ultralytics: it does nothing here",
        ),
        ({"device": "0,1"}, "Task 'ultralytics' trains a run in one process but device = '0,1'"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(AttnlabError) as caught:
        train(config(**settings), tmp_path)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"recipe": {"name": "ultralytics", "lr": 0.1}},
            "Task 'ultralytics' trains by its program's own settings, and the recipe's lr is not "
            "one of them.",
        ),
        ({"backbone": "resnet20"}, "Expected ultralytics:NAME, such as ultralytics:yolo11n"),
        ({"backbone": "ultralytics:yolo11n.pt"}, "its files of weights are whole pickled programs"),
        ({"backbone": "ultralytics:gone.yaml"}, "There is no file 'gone.yaml'."),
        ({"backbone": "ultralytics:yolo11q"}, "it has no network 'yolo11q'. Expected one of its"),
        (
            {"backbone": "ultralytics:yolo11n-seg"},
            "'yolo11n-seg' ends in Segment, which is for task 'ultralytics-segment'.",
        ),
        ({"data": "digits"}, "learns boxes, but data 'digits' has classes"),
        (
            {"data": {"name": "shapes", "augmentation": {"flip": True}}},
            "augments by its trainer's own settings, such as fliplr",
        ),
    ],
)
def test_what_another_program_would_not_see_is_refused(
    changed: dict[str, Any], said: str, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {
        "task": {"name": "ultralytics", "options": {"imgsz": 32}},
        "data": "shapes",
        "backbone": "ultralytics:yolov8n",
        "recipe": "ultralytics",
    }
    with pytest.raises(AttnlabError) as caught:
        train(RunConfig(**{**settings, **changed}), tmp_path)
    assert said in str(caught.value)


def test_a_yaml_of_the_user_is_part_of_what_a_run_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ultralytics.utils import ROOT

    from attnlab.lab.training import identify

    monkeypatch.chdir(tmp_path)
    text = (ROOT / "cfg" / "models" / "v8" / "yolov8.yaml").read_text()
    settings = config().model_copy(update={"backbone": "ultralytics:yolo11n.yaml"})
    file = tmp_path / "yolo11n.yaml"  # the name of one of theirs
    found = []
    for changed in (text, text.replace("[-1, 6, C2f, [256, True]]", "[-1, 1, C2f, [256, True]]")):
        file.write_text(changed)
        task = build_task(settings.task, load_data(settings.data).facts)
        parameters = sum(p.numel() for p in build_network(settings, task).parameters())
        found.append((identify(settings, threads=1).run_id, parameters))
    assert len({run_id for run_id, _ in found}) == len({number for _, number in found}) == 2
    bare = config().model_copy(update={"backbone": "ultralytics:yolo11n"})
    task = build_task(bare.task, load_data(bare.data).facts)
    with pytest.raises(AttnlabError, match=r"the file 'yolo11n.yaml' is here too"):
        build_network(bare, task)
