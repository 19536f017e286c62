"""Outlines, points and classes learned by Ultralytics: its own trainings to the bit, killed and
resumed, and the figures of its own validators."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.tools.forked import forking

from attnlab import AttnlabError
from attnlab.bridges.yolo_study.folder import data_folder
from attnlab.bridges.yolo_study.kinds import KINDS, POSE, SEGMENT, TITLES, Kind
from attnlab.data import DataConfig, load_data
from attnlab.data.boxes import BoxData
from attnlab.data.shapes import POINTS, load_shape_masks
from attnlab.lab.training import RunConfig, train
from attnlab.lab.training.evaluate import evaluate
from attnlab.results import StoredRun
from attnlab.subject import open_run
from attnlab.subject.building import build_network
from attnlab.subject.run import load_network
from attnlab.tasks import build_task

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # theirs
    pytest.mark.usefixtures("ultralytics", "cache"),
]
MORE: dict[str, dict[str, Any]] = {
    "segment": {"close_mosaic": 1, "copy_paste": 0.3, "mask_ratio": 2, "degrees": 10.0},
    "pose": {"close_mosaic": 1, "pose": 10.0},
    "classify": {"dropout": 0.2, "erasing": 0.2},
}
SHARED = {"optimizer": "SGD", "nbs": 16, "warmup_epochs": 1.0}
NEW = [kind for kind in KINDS if kind.name in MORE]
TIMES = ("train_seconds", "data_seconds", "images_per_second", "seconds")
WHOLE = {"crop": "none", "flip": False}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory, ultralytics: Any) -> Iterator[Path]:
    """Images are written to a folder of the test."""
    assert ultralytics.__version__
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


def kind_of(name: str) -> Kind:
    return next(kind for kind in KINDS if kind.name == name)


def config(kind: str, epochs: int = 2, gate: str = "se", **more: Any) -> RunConfig:
    few = {"train_subset": 10, "test_subset": 4}
    return RunConfig(
        task={"name": TITLES[kind], "options": {"imgsz": 32, **SHARED, **MORE[kind], **more}},
        data={"name": "digits", "size": 32, **few}
        if kind == "classify"
        else {"name": "shapes", "size": 32, **few},
        backbone=f"ultralytics:{kind_of(kind).example.replace('yolo11', 'yolov8')}",
        attention=gate,
        recipe={"name": "ultralytics", "epochs": epochs, "batch_size": 4},
        seed=1,
    )


def lines(folder: Path) -> list[dict[str, Any]]:
    """What is known of each epoch, without times."""
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: line[name] for name in line if name not in TIMES} for line in found]


@pytest.fixture(scope="module", params=[kind.name for kind in NEW])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, cache: Path, kind: str) -> Path:
    assert cache.is_dir()
    folder = tmp_path_factory.mktemp("runs") / kind
    train(config(kind), folder, threads=1, progress=lambda _: None)
    return folder


def by_hand(
    kind: str, network: torch.nn.Module, folder: Path, data: Path
) -> tuple[list[Any], torch.nn.Module]:
    """Ultralytics' trainer with the same settings: the figures of each epoch, and its average."""
    trainer = kind_of(kind).trainer()(
        overrides={
            "model": f"{kind_of(kind).example}.yaml",
            "data": str(data),
            "imgsz": 32,
            "epochs": 2,
            "batch": 4,
            "seed": 1,
            "patience": 0,
            "plots": False,
            "project": str(folder),
            **SHARED,
            **MORE[kind],
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


@pytest.mark.slow  # two trainings of each kind
def test_a_run_is_ultralytics_own_training_to_the_bit(run: Path, kind: str, tmp_path: Path) -> None:
    settings = config(kind)
    data = load_data(settings.data)
    task = build_task(settings.task, data.facts)
    network = build_network(settings, task)
    threads = torch.get_num_threads()
    figures, average = by_hand(kind, network, tmp_path, task.prepared(data).source)  # type: ignore[attr-defined]
    torch.set_num_threads(threads)
    state, expected = load_network(run).state_dict(), average.float().state_dict()
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name], expected[name]) for name in state)
    for line, theirs in zip(lines(run), figures, strict=True):
        for name, title in task.their_metrics.items():  # type: ignore[attr-defined]
            assert line["test"][name] == theirs[f"metrics/{title}"]
        assert line["train_loss"] == pytest.approx(
            sum(value for name, value in theirs.items() if "loss" in name and "val" not in name)
        )


def test_the_record_and_a_measurement_afterwards(run: Path, kind: str) -> None:
    stored = StoredRun(run)
    assert stored.is_trained
    first = {"segment": "AP50-95 of masks", "pose": "AP50-95 of points", "classify": "top-1"}
    assert stored.result.metric.label == first[kind]
    subject = open_run(run)
    for size in (8, subject.batch_size):
        found = evaluate(subject.network, subject.learned(), subject.images(), size, subject.device)
        assert found == pytest.approx(lines(run)[-1]["test"], abs=6e-6)  # they round to 5 digits
    batch = next(iter(subject.own_batches()))
    with torch.no_grad():
        assert torch.isfinite(subject.learned().loss(subject.network, batch).mean)


LOADED = ("ultralytics.models.yolo", "attnlab.lab.training.loop")
KILLED = """
import os, signal, sys
from tests.bridges.test_yolo_kinds import config
from attnlab.lab.training import train

def ended(record):
    if record.epoch == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

train(config(sys.argv[3], 3), sys.argv[1], threads=1, progress=ended)
"""


@pytest.mark.slow  # trainings in nine processes
def test_a_killed_run_goes_on_to_the_bit(kind: str, tmp_path: Path) -> None:
    def attempt(folder: Path, last: int) -> int:
        return forking(*LOADED).run(KILLED, str(folder), str(last), kind).code

    assert attempt(tmp_path / "whole", 99) == 0
    assert attempt(tmp_path / "killed", 1) == -9
    assert attempt(tmp_path / "killed", 99) == 0
    one, other = (load_network(tmp_path / name).state_dict() for name in ("whole", "killed"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert lines(tmp_path / "whole") == lines(tmp_path / "killed")


def boxes_of(config: DataConfig) -> BoxData:
    data = load_data(config)
    assert isinstance(data, BoxData)
    return data


def inside(corners: torch.Tensor, side: int) -> torch.Tensor:
    """Which middles of pixels lie in a convex polygon, corners clockwise as pictures are seen."""
    rows, columns = torch.meshgrid(*[torch.arange(side) + 0.5] * 2, indexing="ij")
    found = torch.ones(side, side, dtype=torch.bool)
    for (x, y), (to_x, to_y) in zip(corners, corners.roll(-1, 0), strict=True):
        found &= (to_x - x) * (rows - y) - (to_y - y) * (columns - x) >= -1e-4
    return found


def test_outlines_of_shapes_are_their_masks_and_points_lie_on_the_border() -> None:
    few = DataConfig(name="shapes", train_subset=2, test_subset=20, augmentation=WHOLE)
    data = boxes_of(few)
    masks = load_shape_masks(few.model_copy(update={"name": "shape-masks"}))
    (batch,) = masks.testing([torch.arange(20)], torch.device("cpu"))
    for image, mask in zip(data.test, batch.targets, strict=True):
        drawn = torch.zeros_like(mask)
        assert image.points is not None
        assert image.points.shape == (len(image.outlines), *POINTS.shape)
        for label, outline, points, box in zip(
            image.target["labels"], image.outlines, image.points, image.target["boxes"], strict=True
        ):
            drawn[inside(outline, 96)] = label
            top, left, right = points[:, :2]
            assert top[1] < min(left[1], right[1])
            assert left[0] < top[0] < right[0]
            assert left[1] == right[1]
            assert (points[:, :2] >= box[:2] - 2).all()  # a sharp corner
            assert (points[:, :2] <= box[2:] + 2).all()
        assert (drawn != mask).float().mean() < 0.002  # a disc has 48 corners


def test_the_folder_says_what_is_learned() -> None:
    few = {"train_subset": 3, "test_subset": 3}
    data = boxes_of(DataConfig(name="shapes", size=32, augmentation=WHOLE, **few))
    for kind in (SEGMENT, POSE):
        folder = data_folder(data, kind)
        for number, image in enumerate(data.train):
            text = (folder / "labels" / "train" / f"{number:07d}.txt").read_text()
            for place, line in enumerate(text.splitlines()):
                label, *words = map(float, line.split())
                assert label + 1 == image.target["labels"][place]
                if kind is SEGMENT:
                    corners = 32 * torch.tensor(words).reshape(-1, 2)
                    assert torch.allclose(corners.double(), image.outlines[place], atol=1e-5)
                else:
                    assert image.points is not None
                    points = torch.tensor(words[4:]).reshape(3, 3) * torch.tensor([32, 32, 1])
                    assert torch.allclose(points.double(), image.points[place], atol=1e-5)
        description = (folder / "data.yaml").read_text()
        assert ("kpt_shape: [3, 3]\nflip_idx: [0, 2, 1]\n" in description) == (kind is POSE)


@pytest.mark.parametrize("kind", [SEGMENT, POSE])
def test_a_folder_of_yolo_is_read_as_it_was_written(kind: Kind) -> None:
    few = {"train_subset": 4, "test_subset": 2}
    data = boxes_of(DataConfig(name="shapes", size=64, augmentation=WHOLE, **few))
    folder = data_folder(data, kind)
    again = boxes_of(DataConfig(name="yolo", root=str(folder), augmentation=WHOLE))
    assert again.facts.points == (POINTS if kind is POSE else None)
    for one, other in zip(data.train, again.train, strict=True):
        assert torch.equal(one.pixels(), other.pixels())
        assert torch.equal(one.target["labels"], other.target["labels"])
        if kind is SEGMENT:
            for outline, found in zip(one.outlines, other.outlines, strict=True):
                assert torch.allclose(outline, found, atol=1e-5)
                box = torch.cat([found.amin(0), found.amax(0)])
                assert (
                    torch.allclose(other.target["boxes"].double(), box[None], atol=1e-4)
                    or len(other.outlines) > 1
                )
        else:
            assert one.points is not None
            assert other.points is not None
            assert torch.allclose(one.points, other.points, atol=1e-5)


def test_classes_are_written_in_our_order() -> None:
    settings = config("classify")
    data = load_data(settings.data)
    prepared = build_task(settings.task, data.facts).prepared(data)
    (batch,) = prepared.testing([torch.arange(4)], torch.device("cpu"))
    (ours,) = data.testing([torch.arange(4)], torch.device("cpu"))
    assert torch.equal(batch.targets, ours.targets)
    assert batch.inputs.shape == (4, 3, 32, 32)
    pixels = data.facts.pixels(ours.inputs).expand(-1, 3, -1, -1)
    assert torch.allclose(batch.inputs, pixels, atol=0.5 / 255 + 1e-6)
    folder = prepared.folder  # type: ignore[attr-defined]
    assert [place.name for place in sorted((folder / "train").iterdir())] == list("0123456789")


@pytest.mark.parametrize(
    ("kind", "changed", "said"),
    [
        (
            "classify",
            {"mosaic": 1.0},
            "Task 'ultralytics-classify' takes no 'mosaic', a setting of Ultr",
        ),
        ("detect", {"dropout": 0.1}, "Task 'ultralytics' takes no 'dropout', a setting of Ultr"),
        (
            "detect",
            {"mask_ratio": 4},
            "Task 'ultralytics' takes no 'mask_ratio', a setting of Ultr",
        ),
        ("segment", {"pose": 1.0}, "Task 'ultralytics-segment' takes no 'pose', a setting of Ultr"),
        ("pose", {"backbone": "yolov8n"}, "'yolov8n' ends in Detect, which is for task 'ultra"),
        (
            "classify",
            {"backbone": "yolo11n-seg"},
            "ends in Segment, which is for task 'ultralytics-seg",
        ),
        ("segment", {"backbone": "yolo11n-cls"}, "ends in Classify, which is for task"),
        (
            "classify",
            {"data": "digits"},
            "no image with a side below 10 pixels, and those of 'digits'",
        ),
        (
            "classify",
            {"data": {"name": "digits", "size": 32, "augmentation": {"flip": True}}},
            "data.augmentation changes training images.",
        ),
        ("classify", {"data": "shapes"}, "learns classes, but data 'shapes' has boxes"),
    ],
)
def test_what_does_not_fit_is_refused(
    kind: str, changed: dict[str, Any], said: str, tmp_path: Path
) -> None:
    base = config(kind) if kind in MORE else config("pose")
    options: dict[str, Any] = {"imgsz": 32}
    fields: dict[str, Any] = {"backbone": base.backbone, "data": base.data}
    for name, value in changed.items():
        if name in fields:
            fields[name] = f"ultralytics:{value}" if name == "backbone" else value
        else:
            options[name] = value
    task = {"name": TITLES[kind], "options": options}
    with pytest.raises(AttnlabError) as caught:
        train(RunConfig(task=task, recipe="ultralytics", **fields), tmp_path)
    assert said in str(caught.value)


def written_yolo(root: Path, label: str, description: str = "") -> DataConfig:
    for part in ("train", "val"):
        for kind in ("images", "labels"):
            (root / kind / part).mkdir(parents=True)
        Image.fromarray(np.zeros((20, 40, 3), np.uint8)).save(root / "images" / part / "a.png")
        (root / "labels" / part / "a.txt").write_text(label)
    text = f"train: images/train\nval: images/val\nnames: [thing]\n{description}"
    (root / "data.yaml").write_text(text)
    return DataConfig(name="yolo", root=str(root), augmentation=WHOLE)


@pytest.mark.parametrize(
    ("label", "description", "said"),
    [
        ("0 0.5 0.5 0.2 0.2 0.1", "", "has 5 numbers, expected 4"),
        ("0 0.5 0.5 0.2 0.2 0.1 0.1", "kpt_shape: [2, 2]\n", "has 6 numbers, expected 4"),
        ("0 0.1 0.1 0.2 0.2 nan 0.1", "", "has an outline or points that are not finite"),
        ("0 0.1 0.1 0.2 0.2 1.5 0.1", "", "is outside of the image"),
        ("0 0.5 0.5 0.2 0.2", "kpt_shape: [2, 4]\n", "expected kpt_shape to be a list"),
        ("0 0.5 0.5 0.2 0.2", "kpt_shape: [2, 2]\nflip_idx: [0, 0]\n", "expected flip_idx to have"),
        ("0 0.5 0.5 0.2 0.2", "kpt_shape: [1, 2]\nkpt_oks_sigmas: [0]\n", "kpt_oks_sigmas to be 1"),
    ],
)
def test_labels_that_cannot_be_used_are_named(
    tmp_path: Path, label: str, description: str, said: str
) -> None:
    with pytest.raises(AttnlabError) as caught:
        load_data(written_yolo(tmp_path, label, description))
    assert said in str(caught.value)


@pytest.mark.parametrize(("kind", "said"), [("segment", "without one"), ("pose", "have none")])
def test_boxes_alone_are_not_enough(tmp_path: Path, kind: str, said: str) -> None:
    data = load_data(written_yolo(tmp_path, "0 0.5 0.5 0.2 0.2"))
    with pytest.raises(AttnlabError, match=said):
        build_task(config(kind).task, data.facts).prepared(data)
