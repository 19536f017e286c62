"""Objects in images, found by a network that Ultralytics trains: boxes, outlines or points."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from attnlab._errors import InputError, OptionError
from attnlab.bridges.yolo_study.base import Named, UltralyticsTask, share
from attnlab.bridges.yolo_study.batches import YoloObjects
from attnlab.bridges.yolo_study.kinds import DETECT, POSE, SEGMENT, STRIDE
from attnlab.bridges.yolo_study.offline import offline
from attnlab.data import Batch, Data
from attnlab.data.boxes import BoxData
from attnlab.results.details import Breakdown, Curves, DetailsResult, MarkedPicture
from attnlab.tasks.detection import marked_picture
from attnlab.tasks.task import Loss, TaskMeters

Found = list[dict[str, Tensor]]
"""What was found in each image: `bboxes`, `conf`, `cls`, and `masks` or `keypoints`."""
_PICTURES = 6
"""Test images that a page shows."""
_PLACES = 101
"""Of a curve of precision by recall."""
_MOST_CURVES = 12
"""Categories that a page draws a curve of; more cannot be told apart by colour."""
_NEXT_TO_NOTHING = 0.01
"""The average precision up to which a network finds next to no object."""


class Ultralytics(UltralyticsTask[Found]):
    """A detector that Ultralytics trains; the result is AP50-95 of boxes. Backbones and options are
    those of `UltralyticsTask`.

    Args:
        facts: of the data.
        imgsz: the side that images are resized to.
        settings: Ultralytics' own.
    """

    kind = DETECT
    targets = "boxes"
    metrics = (
        share("ap", "AP50-95", _NEXT_TO_NOTHING),
        share("ap50", "AP50"),
        share("precision", "precision"),
        share("recall", "recall"),
    )
    their_metrics = {
        "ap": "mAP50-95(B)",
        "ap50": "mAP50(B)",
        "precision": "precision(B)",
        "recall": "recall(B)",
    }
    part, learned = "box", "boxes"
    """Of their metrics, the one that the result is of; what it is of."""

    def written(self, data: Data) -> YoloObjects:
        if not isinstance(data, BoxData):
            raise InputError(
                f"{self.title} cannot train on data {data.facts.name!r}. Expected data with boxes: "
                f"shapes, coco, voc or yolo."
            )
        if data.augmentation.flip:
            raise OptionError(
                f"{self.title} augments by its trainer's own settings, such as fliplr, but "
                f"data.augmentation.flip is true. Leave it out, or set it to false."
            )
        self.check_known(data)
        settings = self.chosen("overlap_mask", "mask_ratio")
        return YoloObjects(data, self.kind, self.imgsz, settings)

    def check_known(self, data: BoxData) -> None:
        """Refuse data that do not have what is learned."""

    def built(self, network: type[nn.Module], layers: dict[str, Any]) -> Any:
        found: Any = network(layers, nc=self.facts.outputs, verbose=False)
        if int(found.stride.max()) != STRIDE:
            raise ValueError(f"its strides are {found.stride.int().tolist()}, not up to {STRIDE}")
        return found

    def class_names(self) -> tuple[str, ...]:
        return self.facts.categories

    def loss(self, network: nn.Module, batch: Batch) -> Loss:
        theirs: Any = network
        theirs.args = self.arguments(self.settings)
        found, parts = theirs.loss(batch.targets)
        theirs.criterion = None  # not part of the network that was given
        mean = found.sum() / len(batch.inputs)
        return Loss(mean, {}, {name: value.detach().double() for name, value in parts.items()})

    def predict(self, network: nn.Module, batch: Batch) -> Found:
        theirs: Any = network
        theirs.end2end = False  # as their validation in training has it
        with offline():
            found: Found = self._shared(batch.inputs.device).postprocess(network(batch.inputs))
        return found

    def object_validator(self, device: torch.device) -> Any:
        """Their validator, ready to be told what was found."""
        found = self.validator()
        found.device = device
        found.data = (
            {}
            if self.facts.points is None
            else {
                "kpt_shape": list(self.facts.points.shape),
                "kpt_oks_sigmas": list(self.facts.points.deviations),
            }
        )
        found.init_metrics(Named(self.facts.categories))
        return found

    @lru_cache(maxsize=2)  # noqa: B019 (a task lives as long as its process)
    def _shared(self, device: torch.device) -> Any:
        """One that only says what was found."""
        return self.object_validator(device)

    def meters(self, device: torch.device) -> TaskMeters[Found]:
        return _Objects(self, device)

    def details(self, network: nn.Module, batches: Iterable[Batch]) -> DetailsResult:
        meters: _Objects | None = None
        pictures: list[MarkedPicture] = []
        categories = self.facts.categories
        for batch in batches:
            meters = meters or _Objects(self, batch.inputs.device)
            found = self.predict(network, batch)
            for number in range(min(len(found), _PICTURES - len(pictures))):
                pictures.append(_picture(batch, found, number, categories))
            meters.update(found, batch.targets)
        assert meters is not None
        figures = getattr(meters.finished().metrics, self.part)
        of = "" if self.kind is DETECT else f" of {self.learned}"
        return _details(figures, pictures, categories, of)


class UltralyticsSegment(Ultralytics):
    """A network that Ultralytics trains to find objects and their outlines; the result is AP50-95
    of their masks. Backbones and options are those of `UltralyticsTask`.

    Args:
        facts: of the data.
        imgsz: the side that images are resized to.
        settings: Ultralytics' own.
    """

    kind = SEGMENT
    metrics = (
        share("mask_ap", "AP50-95 of masks", _NEXT_TO_NOTHING),
        share("mask_ap50", "AP50 of masks"),
        share("ap", "AP50-95 of boxes"),
        share("ap50", "AP50 of boxes"),
    )
    their_metrics = {
        "mask_ap": "mAP50-95(M)",
        "mask_ap50": "mAP50(M)",
        "ap": "mAP50-95(B)",
        "ap50": "mAP50(B)",
    }
    part, learned = "seg", "masks"

    def check_known(self, data: BoxData) -> None:
        for image in (*data.train, *data.test):
            if len(image.outlines) != len(image.target["labels"]):
                raise InputError(
                    f"{self.title} learns outlines, and data {data.facts.name!r} have boxes "
                    f"without one. Expected shapes, or yolo whose labels are polygons."
                )


class UltralyticsPose(Ultralytics):
    """A network that Ultralytics trains to find objects and points of them; the result is AP50-95
    of the points. Backbones and options are those of `UltralyticsTask`.

    Args:
        facts: of the data.
        imgsz: the side that images are resized to.
        settings: Ultralytics' own.
    """

    kind = POSE
    metrics = (
        share("pose_ap", "AP50-95 of points", _NEXT_TO_NOTHING),
        share("pose_ap50", "AP50 of points"),
        share("ap", "AP50-95 of boxes"),
        share("ap50", "AP50 of boxes"),
    )
    their_metrics = {
        "pose_ap": "mAP50-95(P)",
        "pose_ap50": "mAP50(P)",
        "ap": "mAP50-95(B)",
        "ap50": "mAP50(B)",
    }
    part, learned = "pose", "points"

    def check_known(self, data: BoxData) -> None:
        if data.facts.points is None:
            raise InputError(
                f"{self.title} learns points, and the objects of data {data.facts.name!r} have "
                f"none. Expected shapes, or yolo with kpt_shape in its YAML."
            )

    def built(self, network: type[nn.Module], layers: dict[str, Any]) -> nn.Module:
        points = self.facts.points
        assert points is not None
        found: Any = super().built(network, {**layers, "kpt_shape": list(points.shape)})
        found.kpt_oks_sigmas = list(points.deviations) or None  # as their trainer sets it
        return found


class _Objects(TaskMeters[Found]):
    """Their validator, told of what was found."""

    def __init__(self, task: Ultralytics, device: torch.device) -> None:
        self._figures = task.figures
        with offline():
            self._validator = task.object_validator(device)

    def update(self, predictions: Found, targets: Any) -> None:
        self._validator.update_metrics(predictions, targets)

    def finished(self) -> Any:
        """The validator with its figures."""
        self._validator.get_stats()
        return self._validator

    def compute(self) -> dict[str, float | None]:
        return self._figures(self._validator.get_stats())


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
    figures: Any, pictures: list[MarkedPicture], categories: tuple[str, ...], of: str
) -> DetailsResult:
    there = {categories[int(n)]: place for place, n in enumerate(figures.ap_class_index)}
    by_category = {
        name: 100 * float(figures.ap[there[name]]) if name in there else None for name in categories
    }
    lines: dict[str, tuple[float, ...]] = {}
    x: tuple[float, ...] = ()
    if there:
        recalls, precisions = figures.curves_results[0][:2]
        every = max(1, (len(recalls) - 1) // (_PLACES - 1))
        x = tuple(float(f"{recall:.4g}") for recall in recalls[::every])
        lines = {
            name: tuple(float(f"{value:.4g}") for value in precisions[place][::every])
            for name, place in list(there.items())[:_MOST_CURVES]
        }
    curves = Curves(
        title=f"Precision by recall{of}, IoU 0.5",
        x_title="recall",
        y_title="precision",
        x=x,
        lines=lines,
    )
    return DetailsResult(
        breakdowns=(Breakdown(title=f"AP50-95{of} by category", unit="%", values=by_category),),
        curves=(curves,) if lines else (),
        pictures=tuple(pictures),
    )
