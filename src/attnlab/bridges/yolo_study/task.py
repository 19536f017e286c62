"""Objects in images, found by a network that Ultralytics trains."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from attnlab._errors import InputError, OptionError
from attnlab.bridges.yolo_study.batches import STRIDE, YoloData
from attnlab.bridges.yolo_study.offline import import_offline, offline
from attnlab.bridges.yolo_study.settings import VALIDATION, check_settings, check_their_values
from attnlab.data import Batch, Data, Facts, Value
from attnlab.data.boxes import BoxData
from attnlab.results.details import Breakdown, Curves, DetailsResult, MarkedPicture
from attnlab.results.metric import Metric
from attnlab.tasks.detection import marked_picture
from attnlab.tasks.elsewhere import Assignment, TaskTrainedElsewhere
from attnlab.tasks.task import Loss, TaskMeters

if TYPE_CHECKING:
    from ultralytics.models.yolo.detect import DetectionValidator
    from ultralytics.nn.tasks import DetectionModel

_YAML = (".yaml", ".yml")
_SCALE, _WITHOUT_SCALE = re.compile(r"(\d+)([nslmx])(.+)?$"), r"\1\3"
"""Their names: yolo11n is the description yolo11.yaml at the scale n."""
PREFIX = "ultralytics:"
"""Before the name of a network."""
Found = list[dict[str, Tensor]]
"""What was found in each image: `bboxes`, `conf` and `cls`."""
_PICTURES = 6
"""Test images that a page shows."""
_PLACES = 101
"""Of a curve of precision by recall."""
_MOST_CURVES = 12
"""Categories that a page draws a curve of; more cannot be told apart by colour."""
_NEXT_TO_NOTHING = 0.01
"""The average precision up to which a detector finds next to no object."""


def _share(name: str, label: str, nothing: float | None = None) -> Metric:
    return Metric(name=name, label=label, unit="%", scale=100, least=0, most=1, nothing=nothing)


class Ultralytics(TaskTrainedElsewhere[Found]):
    """A detector that Ultralytics trains, by its trainer and its settings; the result is AP50-95
    of its validator.

    The backbone is the name of one of its networks, `ultralytics:yolo11n`, or your own YAML,
    `ultralytics:my.yaml`. All options but `imgsz` are its settings for training and validation, as
    its own command has them (`lr0`, `mosaic`, `optimizer`, …).

    Args:
        facts: of the data.
        imgsz: the side that images are resized to.
        settings: Ultralytics' own.
    """

    targets = "boxes"
    mean_of_inputs = False
    metrics = (
        _share("ap", "AP50-95", _NEXT_TO_NOTHING),
        _share("ap50", "AP50"),
        _share("precision", "precision"),
        _share("recall", "recall"),
    )

    def __init__(self, facts: Facts, imgsz: int = 640, **settings: Value) -> None:
        super().__init__(facts)
        if isinstance(imgsz, bool) or imgsz < STRIDE or imgsz % STRIDE:
            raise OptionError(
                f"Expected imgsz to be a multiple of {STRIDE} but got {imgsz}: Ultralytics would "
                f"take {max(1, -(-imgsz // STRIDE)) * STRIDE}."
            )
        self.facts = replace(facts, shape=(3, imgsz, imgsz))
        self.imgsz, self.settings = imgsz, settings

    @classmethod
    def check_options(cls, options: Mapping[str, Value], what: str) -> None:
        check_settings(options, {"imgsz": int}, what)

    def check(self, backbone: str, options: Mapping[str, Value]) -> None:
        del options
        _name(backbone)
        import_offline()
        check_their_values(self.settings, "Task 'ultralytics'")

    def prepared(self, data: Data) -> Data:
        if isinstance(data, YoloData):
            return data
        if not isinstance(data, BoxData):
            raise InputError(
                f"Task 'ultralytics' cannot train on data {data.facts.name!r}. Expected data with "
                f"boxes: shapes, coco, voc or yolo."
            )
        if data.augmentation.flip:
            raise OptionError(
                "Task 'ultralytics' augments by its trainer's own settings, such as fliplr, but "
                "data.augmentation.flip is true. Leave it out, or set it to false."
            )
        return YoloData(data, self.imgsz)

    def build(self, backbone: str, options: Mapping[str, Value]) -> nn.Module:
        name = _name(backbone)
        if options:
            raise OptionError(
                f"{backbone!r} has no option {next(iter(options))!r}: networks of Ultralytics are "
                f"described by their YAML."
            )
        with offline():
            from ultralytics.nn.modules.head import Detect, v10Detect
            from ultralytics.nn.tasks import DetectionModel

            try:
                network = DetectionModel(_layers(name), nc=self.facts.outputs, verbose=False)
            except (FileNotFoundError, KeyError, TypeError, ValueError) as error:
                raise InputError(
                    f"Ultralytics builds no detector from {name!r}: {error}. Expected one of its "
                    f"names, such as {PREFIX}yolo11n or {PREFIX}yolov8n, or a YAML of yours."
                ) from None
        head = network.model[-1]
        if type(head) not in (Detect, v10Detect) or int(network.stride.max()) != STRIDE:
            raise InputError(
                f"Expected a detector with strides up to {STRIDE} but {name!r} ends in "
                f"{type(head).__name__} with strides {network.stride.int().tolist()}."
            )
        network.names = dict(enumerate(self.facts.categories))
        return network

    def train(self, network: nn.Module, data: Data, assignment: Assignment) -> None:
        assert isinstance(data, YoloData)
        with offline(quiet=False):
            from attnlab.bridges.yolo_study.training import train_network

            train_network(network, data, assignment, {"imgsz": self.imgsz, **self.settings})

    def loss(self, network: nn.Module, batch: Batch) -> Loss:
        theirs: DetectionModel = network
        theirs.args = _arguments(self.settings)
        found, parts = theirs.loss(batch.targets)
        theirs.criterion = None  # not part of the network that was given
        mean = found.sum() / len(batch.inputs)
        return Loss(mean, {}, {name: value.detach().double() for name, value in parts.items()})

    def predict(self, network: nn.Module, batch: Batch) -> Found:
        theirs: DetectionModel = network
        theirs.end2end = False  # as their validation in training has it
        with offline():
            found: Found = self._validator(batch.inputs.device).postprocess(network(batch.inputs))
        return found

    @lru_cache(maxsize=2)  # noqa: B019 (a task lives as long as its process)
    def _validator(self, device: torch.device) -> DetectionValidator:
        """One that only says what was found."""
        return _validator(self, device)

    def meters(self, device: torch.device) -> TaskMeters[Found]:
        return _Boxes(self, device)

    def details(self, network: nn.Module, batches: Iterable[Batch]) -> DetailsResult:
        meters: _Boxes | None = None
        pictures: list[MarkedPicture] = []
        categories = self.facts.categories
        for batch in batches:
            meters = meters or _Boxes(self, batch.inputs.device)
            found = self.predict(network, batch)
            for number in range(min(len(found), _PICTURES - len(pictures))):
                pictures.append(_picture(batch, found, number, categories))
            meters.update(found, batch.targets)
        assert meters is not None
        return _details(meters.finished(), pictures, categories)

    def inputs(self, batch: Batch) -> Tensor:
        images: Tensor = batch.inputs
        return images


class _Boxes(TaskMeters[Found]):
    """Their validator, told of what was found."""

    def __init__(self, task: Ultralytics, device: torch.device) -> None:
        with offline():
            self._validator = _validator(task, device)

    def update(self, predictions: Found, targets: Any) -> None:
        self._validator.update_metrics(predictions, targets)

    def finished(self) -> DetectionValidator:
        """The validator with its figures."""
        self._validator.get_stats()
        return self._validator

    def compute(self) -> dict[str, float | None]:
        return figures(self._validator.get_stats())


def figures(found: Mapping[str, float]) -> dict[str, float | None]:
    """The values of the task's metrics in what their validator says."""
    theirs = {"ap": "mAP50-95", "ap50": "mAP50", "precision": "precision", "recall": "recall"}
    return {name: float(found[f"metrics/{title}(B)"]) for name, title in theirs.items()}


def _name(backbone: str) -> str:
    """The name of one of their networks, or a file of the user's."""
    name = backbone.removeprefix(PREFIX)
    if name == backbone or "://" in name:
        raise InputError(
            f"Task 'ultralytics' trains networks of Ultralytics, and {backbone!r} is none. "
            f"Expected {PREFIX}NAME, such as {PREFIX}yolo11n, or {PREFIX}FILE.yaml."
        )
    if Path(name).suffix in _YAML and not Path(name).is_file():
        raise InputError(f"There is no file {name!r}. Expected a YAML of yours, or {PREFIX}NAME.")
    if Path(name).suffix and Path(name).suffix not in _YAML:
        raise InputError(
            f"Expected a name or a YAML of Ultralytics but got {name!r}: its files of weights are "
            f"whole pickled programs, which attnlab does not read."
        )
    return name


def _layers(name: str) -> dict[str, Any]:
    """The description of a network. Their own reader takes a file of theirs in the place of the
    user's if it has the same name, and the other way round."""
    from ultralytics.nn.tasks import guess_model_scale, yaml_model_load
    from ultralytics.utils import ROOT, YAML

    if Path(name).suffix in _YAML:
        return {**YAML.load(name), "scale": guess_model_scale(name), "yaml_file": name}
    named = f"{name}.yaml", f"{_SCALE.sub(_WITHOUT_SCALE, name)}.yaml"
    beside = [file for file in named if Path(file).exists()]
    if beside:
        raise ValueError(f"the file {beside[0]!r} is here too; name it, or go to another folder")
    if not {file.name for file in (ROOT / "cfg" / "models").rglob("*.yaml")} & set(named):
        raise FileNotFoundError(f"it has no network {name!r}")
    found: dict[str, Any] = yaml_model_load(named[0])
    return found


def _arguments(settings: Mapping[str, Value]) -> Any:
    """Their settings as an object, with their defaults."""
    from ultralytics.cfg import get_cfg

    return get_cfg(overrides={"task": "detect", **settings})


def _validator(task: Ultralytics, device: torch.device) -> DetectionValidator:
    """Theirs, as it is in training, with nothing to validate yet."""
    from ultralytics.models.yolo.detect import DetectionValidator

    chosen = {name: task.settings[name] for name in VALIDATION if name in task.settings}
    given = {"task": "detect", "imgsz": task.imgsz, "plots": False, "save_dir": ".", **chosen}
    validator = DetectionValidator(save_dir=Path(), args=_arguments(given))
    validator.device, validator.data = device, {}
    validator.init_metrics(_Named(dict(enumerate(task.facts.categories))))
    return validator


class _Named(nn.Module):
    """What a validator asks of a network before it sees its answers."""

    def __init__(self, names: dict[int, str]) -> None:
        super().__init__()
        self.names, self.end2end = names, False


def _picture(batch: Batch, found: Found, number: int, categories: tuple[str, ...]) -> MarkedPicture:
    image: Tensor = batch.inputs[number]
    height, width = image.shape[-2:]
    mine = batch.targets["batch_idx"] == number
    x, y, w, h = batch.targets["bboxes"][mine].cpu().unbind(1)
    boxes = torch.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], 1)
    true = {
        "boxes": boxes * torch.tensor([width, height, width, height]),
        "labels": batch.targets["cls"][mine].flatten().long().cpu() + 1,
    }
    shown = {
        "boxes": found[number]["bboxes"].cpu(),
        "labels": found[number]["cls"].long().cpu() + 1,
        "scores": found[number]["conf"].cpu(),
    }
    return marked_picture(image, shown, true, categories)


def _details(
    validator: DetectionValidator, pictures: list[MarkedPicture], categories: tuple[str, ...]
) -> DetailsResult:
    box = validator.metrics.box
    there = {categories[int(n)]: place for place, n in enumerate(box.ap_class_index)}
    by_category = {
        name: 100 * float(box.ap[there[name]]) if name in there else None for name in categories
    }
    lines: dict[str, tuple[float, ...]] = {}
    x: tuple[float, ...] = ()
    if there:
        recalls, precisions = box.curves_results[0][:2]
        every = max(1, (len(recalls) - 1) // (_PLACES - 1))
        x = tuple(float(f"{recall:.4g}") for recall in recalls[::every])
        lines = {
            name: tuple(float(f"{value:.4g}") for value in precisions[place][::every])
            for name, place in list(there.items())[:_MOST_CURVES]
        }
    curves = Curves(
        title="Precision by recall, IoU 0.5",
        x_title="recall",
        y_title="precision",
        x=x,
        lines=lines,
    )
    return DetailsResult(
        breakdowns=(Breakdown(title="AP50-95 by category", unit="%", values=by_category),),
        curves=(curves,) if lines else (),
        pictures=tuple(pictures),
    )
