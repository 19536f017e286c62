"""Objects in images: where they are, and what."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from attnlab._errors import OptionError
from attnlab.data import Batch, Facts, Value
from attnlab.networks.create import check_network
from attnlab.results.details import Breakdown, Curves, DetailsResult, Mark, MarkedPicture
from attnlab.results.metric import Metric
from attnlab.tasks._average_precision import (
    RECALLS,
    Found,
    Precision,
    average_precision,
    check_coco_eval_installed,
)
from attnlab.tasks._detectors import PRETRAINED, DetectorPlan, build_detector, freeze, hold_norms
from attnlab.tasks.task import Loss, Task, TaskMeters, gathered

_SHOWN_SCORE = 0.5
"""Boxes of lower scores are left out of pictures."""
_LARGEST = 160
"""Pixels of the long side of a picture."""
_PICTURES = 6
"""Test images that a page shows."""
_MOST_CURVES = 12
"""Categories that a page draws a curve of; more cannot be told apart by colour."""
_SIZES = ("small", "medium", "large")


def details(
    found: Precision, pictures: Sequence[MarkedPicture], categories: Sequence[str]
) -> DetailsResult:
    """Return what a page shows of a detector: AP by category and size, precision by recall,
    images."""
    named = list(enumerate(categories, 1))
    by_category = {name: _percent(found.average(label=label)) for label, name in named}
    by_size = {size: _percent(found.average(size)) for size in _SIZES}
    shown = [(label, name) for label, name in named if label in found.labels][:_MOST_CURVES]
    lines = {
        name: tuple(float(f"{value:.4g}") for value in np.nan_to_num(found.curve(label)))
        for label, name in shown
    }
    curves = Curves(
        title="Precision by recall, IoU 0.5",
        x_title="recall",
        y_title="precision",
        x=tuple(RECALLS.round(2).tolist()),
        lines=lines,
    )
    return DetailsResult(
        breakdowns=(
            Breakdown(title="AP by category", unit="%", values=by_category),
            Breakdown(title="AP by size of the object (32², 96² pixels)", unit="%", values=by_size),
        ),
        curves=(curves,) if lines else (),
        pictures=tuple(pictures),
    )


def marked_picture(
    image: Tensor, predicted: Found, target: Found, categories: Sequence[str]
) -> MarkedPicture:
    """An image (3, H, W) with its boxes, small enough for a page."""
    pixels = (image.detach().cpu().clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
    whole = Image.fromarray(pixels)
    scale = min(1.0, _LARGEST / max(whole.size))
    small = whole.resize((round(whole.width * scale), round(whole.height * scale)))
    buffer = io.BytesIO()
    small.quantize(128).save(buffer, "PNG", optimize=True)
    sure = predicted["scores"] >= _SHOWN_SCORE
    scores = [f" {100 * score:.0f} %" for score in predicted["scores"][sure].tolist()]
    return MarkedPicture(
        png=base64.b64encode(buffer.getvalue()).decode(),
        width=small.width,
        height=small.height,
        true=_marks(target["boxes"], target["labels"], categories, scale),
        found=_marks(
            predicted["boxes"][sure], predicted["labels"][sure], categories, scale, scores
        ),
    )


def _marks(
    boxes: Tensor,
    labels: Tensor,
    categories: Sequence[str],
    scale: float,
    after: Sequence[str] = (),
) -> tuple[Mark, ...]:
    found = []
    for number, (box, label) in enumerate(zip(boxes.tolist(), labels.tolist(), strict=True)):
        left, top, right, bottom = (round(edge * scale, 1) for edge in box)
        text = categories[label - 1] + (after[number] if after else "")
        found.append(Mark(left=left, top=top, right=right, bottom=bottom, text=text))
    return tuple(found)


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


_NEXT_TO_NOTHING = 0.01
"""The average precision up to which a detector finds next to no object."""


def _metric(name: str, label: str, nothing: float | None = None) -> Metric:
    return Metric(name=name, label=label, unit="%", scale=100, least=0, most=1, nothing=nothing)


class Detection(Task[list[Found]]):
    """torchvision's losses; the result is COCO's average precision (AP).

    Args:
        facts: what is known of the data.
        detector: what is built on a backbone with stages: faster_rcnn, retinanet or fcos. One of
            torchvision's own detectors is named as the backbone and taken as it is.
        min_size: to which the short side of an image is resized; 0 is the detector's own choice.
        max_size: what the long side may be then; 0 likewise.
        frozen_stages: this many stages of the backbone, and its stem, do not train; gates there do.
        norm_eval: whether the backbone's batch norms keep the statistics that they came with.
    """

    targets = "boxes"
    mean_of_inputs = False  # torchvision divides by the number of boxes that were sampled
    metrics = (
        _metric("ap", "AP", _NEXT_TO_NOTHING),
        _metric("ap50", "AP50"),
        _metric("ap75", "AP75"),
        _metric("ap_small", "AP small"),
        _metric("ap_medium", "AP medium"),
        _metric("ap_large", "AP large"),
        _metric("ar", "AR"),
    )

    def __init__(
        self,
        facts: Facts,
        detector: str = "faster_rcnn",
        min_size: int = 0,
        max_size: int = 0,
        frozen_stages: int = 0,
        norm_eval: bool = False,
    ) -> None:
        super().__init__(facts)
        check_coco_eval_installed()
        self.plan = DetectorPlan(detector, min_size or None, max_size or None)
        self.frozen_stages, self.norm_eval = frozen_stages, norm_eval

    def check(self, backbone: str, options: Mapping[str, Value]) -> None:
        trained = any(options.get(name) is not None for name in PRETRAINED)
        if not trained and (self.frozen_stages or self.norm_eval):
            what = "frozen_stages" if self.frozen_stages else "norm_eval"
            raise OptionError(
                f"Task 'detection' has {what} = {getattr(self, what)}, which holds what "
                f"{backbone!r} starts with, and that is random. Give trained weights "
                f"(backbone options weights = …), or set frozen_stages = 0 and norm_eval = false."
            )

    @classmethod
    def check_backbone(cls, backbone: str) -> None:
        check_network(backbone)

    def build(self, backbone: str, options: Mapping[str, Value]) -> nn.Module:
        network = build_detector(backbone, options, self.facts, self.plan)
        body = getattr(network.get_submodule("backbone"), "body", None)
        if self.frozen_stages:
            if not isinstance(body, nn.Module):
                raise OptionError(
                    f"frozen_stages is for backbones with stages; {backbone!r} has none."
                )
            freeze(body, self.frozen_stages)
        if self.norm_eval:
            hold_norms(network.get_submodule("backbone"))
        return network

    def loss(self, network: nn.Module, batch: Batch) -> Loss:
        parts: dict[str, Tensor] = network(batch.inputs, batch.targets)
        mean = torch.stack([part.float() for part in parts.values()]).sum()
        shown = {name.removeprefix("loss_"): part.detach().double() for name, part in parts.items()}
        return Loss(mean, {}, shown)

    def predict(self, network: nn.Module, batch: Batch) -> list[Found]:
        found: list[Found] = network(batch.inputs)
        return found

    def meters(self, device: torch.device) -> TaskMeters[list[Found]]:
        del device
        return _Boxes()

    def details(self, network: nn.Module, batches: Iterable[Batch]) -> DetailsResult:
        found = _Boxes()
        pictures: list[MarkedPicture] = []
        for batch in batches:
            predictions = self.predict(network, batch)
            found.update(predictions, batch.targets)
            for parts in zip(batch.inputs, predictions, batch.targets, strict=True):
                if len(pictures) < _PICTURES:
                    pictures.append(marked_picture(*parts, self.facts.categories))
        return details(found.precision(), pictures, self.facts.categories)

    def inputs(self, batch: Batch) -> tuple[list[Tensor]]:
        return (batch.inputs,)


class _Boxes(TaskMeters[list[Found]]):
    """Keeps what was found; it is compared with the truth when all of it is there."""

    def __init__(self) -> None:
        self._pairs: list[tuple[Found, Found]] = []

    def update(self, predictions: list[Found], targets: list[Found]) -> None:
        for predicted, target in zip(predictions, targets, strict=True):
            kept = {name: predicted[name].float().cpu() for name in ("boxes", "scores")}
            kept["labels"] = predicted["labels"].cpu()
            self._pairs.append((kept, {name: each.cpu() for name, each in target.items()}))

    def precision(self) -> Precision:
        """Return the precision over all images of all processes."""
        pairs = gathered(self._pairs)
        return average_precision([p for p, _ in pairs], [t for _, t in pairs])

    def compute(self) -> dict[str, float | None]:
        found = self.precision()
        return {
            "ap": found.average(),
            "ap50": found.average(overlap=0.5),
            "ap75": found.average(overlap=0.75),
            **{f"ap_{size}": found.average(size) for size in _SIZES},
            "ar": found.average_recall(),
        }
