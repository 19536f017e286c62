"""Objects in images: where they are, and what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from attnlab._errors import OptionError
from attnlab.data import Batch, Facts
from attnlab.results.details import DetailsResult, MarkedPicture
from attnlab.results.metric import Metric
from attnlab.tasks._average_precision import (
    Found,
    Precision,
    average_precision,
    check_installed,
    gathered,
)
from attnlab.tasks._detection_details import details, marked_picture
from attnlab.tasks._detectors import PRETRAINED, Plan, build_detector
from attnlab.tasks._pretrained import freeze, hold_norms
from attnlab.tasks.task import Loss, Meters, Task

_PICTURES = 6
"""Test images that a page shows."""


def _percent(name: str, label: str) -> Metric:
    return Metric(name=name, label=label, unit="%", scale=100)


class Detection(Task):
    """torchvision's losses; the result is COCO's average precision (AP).

    Args:
        facts: of the data.
        detector: what is built on a backbone with stages: faster_rcnn, retinanet or fcos. One of
            torchvision's own detectors is named as the backbone and taken as it is.
        min_size: to which the short side of an image is resized; 0 is the detector's own choice.
        max_size: what the long side may be then; 0 likewise.
        frozen_stages: this many stages of the backbone, and its stem, do not train; gates there do.
        norm_eval: whether the backbone's batch norms keep the statistics that they came with.
    """

    targets = "boxes"
    metrics = (
        _percent("ap", "AP"),
        _percent("ap50", "AP50"),
        _percent("ap75", "AP75"),
        _percent("ap_small", "AP small"),
        _percent("ap_medium", "AP medium"),
        _percent("ap_large", "AP large"),
        _percent("ar", "AR"),
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
        check_installed()
        self.plan = Plan(detector, min_size or None, max_size or None)
        self.frozen_stages, self.norm_eval = frozen_stages, norm_eval

    def check(self, backbone: str, options: Mapping[str, Any]) -> None:
        trained = any(options.get(name) is not None for name in PRETRAINED)
        if not trained and (self.frozen_stages or self.norm_eval):
            what = "frozen_stages" if self.frozen_stages else "norm_eval"
            raise OptionError(
                f"Task 'detection' has {what} = {getattr(self, what)}, which holds what "
                f"{backbone!r} starts with, and that is random. Give trained weights "
                f"(backbone options weights = …), or set frozen_stages = 0 and norm_eval = false."
            )

    def build(self, backbone: str, options: Mapping[str, Any]) -> nn.Module:
        network = build_detector(backbone, options, self.facts, self.plan)
        body: Any = getattr(network.backbone, "body", None)
        if self.frozen_stages:
            if body is None:
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

    def meters(self, device: torch.device) -> Meters:
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


class _Boxes(Meters):
    """Keeps what was found; it is compared with the truth when all of it is there."""

    def __init__(self) -> None:
        self._pairs: list[tuple[Found, Found]] = []

    def update(self, predictions: list[Found], targets: list[Found]) -> None:
        for predicted, target in zip(predictions, targets, strict=True):
            kept = {name: predicted[name].float().cpu() for name in ("boxes", "scores")}
            kept["labels"] = predicted["labels"].cpu()
            self._pairs.append((kept, {name: each.cpu() for name, each in target.items()}))

    def precision(self) -> Precision:
        """Of all images, of all processes."""
        pairs = gathered(self._pairs)
        return average_precision([p for p, _ in pairs], [t for _, t in pairs])

    def compute(self) -> dict[str, float | None]:
        found = self.precision()
        return {
            "ap": found.average(),
            "ap50": found.average(overlap=0.5),
            "ap75": found.average(overlap=0.75),
            **{f"ap_{size}": found.average(size) for size in ("small", "medium", "large")},
            "ar": found.average_recall(),
        }
