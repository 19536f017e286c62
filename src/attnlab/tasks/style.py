"""Style transfer: photographs in the style of one picture (Johnson et al., ECCV 2016)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from attnlab._errors import InputError, OptionError
from attnlab.data import Batch, Facts, Value
from attnlab.data.photos import painting_file, read_painting
from attnlab.results.metric import Metric
from attnlab.tasks.perceptual import (
    CONTENT,
    VGG16,
    VGG_MAPS,
    LossNetwork,
    RandomFilters,
    content_loss,
    gram,
    style_loss,
    total_variation,
    vgg16_file,
)
from attnlab.tasks.task import CreatedTask, Loss, Means, TaskMeters, TaskPictures

VARIATION = Metric(name="variation", label="total variation", better="lower", digits=4)


class _Yardstick(NamedTuple):
    """A loss network where it is needed, with the style's Gram matrices."""

    network: LossNetwork
    style: list[Tensor]


class StyleTask(CreatedTask[dict[str, Tensor]]):
    """The loss is `content_weight` × content loss + `style_weight` × style loss, which is also the
    result, on held-out photographs; files are read when they are first needed.

    Args:
        facts: of the data: photographs, whatever else is known of them.
        style: one of attnlab's own pictures, or the path of one.
        style_size: what its short side is scaled to.
        content_weight: of the content loss.
        style_weight: of the style loss.
    """

    targets = "any"
    file_options: ClassVar[tuple[str, ...]] = ("style",)

    def __init__(
        self,
        facts: Facts,
        style: str = "strokes",
        style_size: int = 192,
        content_weight: float = 1.0,
        style_weight: float = 8e3,
    ) -> None:
        super().__init__(facts)
        if facts.shape[0] != 3:
            raise InputError(
                f"Style transfer takes photographs with three channels, but data {facts.name!r} "
                f"has {facts.shape[0]}."
            )
        for name, value in (("content_weight", content_weight), ("style_weight", style_weight)):
            if value < 0:
                raise OptionError(f"Expected {name} to be at least 0 but got {value}.")
        if style_size < 32:
            raise OptionError(f"Expected style_size to be at least 32 but got {style_size}.")
        self.style, self.style_size = style, style_size
        self.content_weight, self.style_weight = content_weight, style_weight
        self._moved: dict[torch.device, _Yardstick] = {}

    @abstractmethod
    def loss_network(self) -> LossNetwork:
        """The one that judges pictures."""

    @classmethod
    def files(cls, options: Mapping[str, Value]) -> dict[str, Path]:
        file = painting_file(str(options.get("style", "strokes")))
        return {} if file is None else {"style": file}

    @property
    def num_classes(self) -> None:
        return None

    def loss(self, network: nn.Module, batch: Batch) -> Loss:
        content, style = self._losses(network(batch.inputs), batch)
        mean = (self.content_weight * content + self.style_weight * style).mean()
        figures = {"content": content, "style": style}
        return Loss(mean, {k: v.detach().double().mean() for k, v in figures.items()})

    def predict(self, network: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """The figures of each picture, in the order of the metrics."""
        pictures = network(batch.inputs)
        content, style = self._losses(pictures, batch)
        total = self.content_weight * content + self.style_weight * style
        values = (total, content, style, total_variation(pictures.float()))
        return {metric.name: value for metric, value in zip(self.metrics, values, strict=True)}

    def meters(self, device: torch.device) -> TaskMeters[dict[str, Tensor]]:
        return _Figures(tuple(metric.name for metric in self.metrics), device)

    def pictures(self, network: nn.Module, batch: Batch) -> TaskPictures:
        photographs = self.facts.pixels(batch.inputs).clamp(0, 1)
        return TaskPictures(photographs, network(batch.inputs).float())

    def _losses(self, pictures: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        yardstick = self._on(pictures.device)
        found = yardstick.network(pictures)
        with torch.no_grad():
            shown = yardstick.network(self.facts.pixels(batch.inputs), CONTENT + 1)[CONTENT]
        return content_loss(found[CONTENT], shown), style_loss(found, yardstick.style)

    def _on(self, device: torch.device) -> _Yardstick:
        if device not in self._moved:
            network = self._loaded.to(device)
            picture = read_painting(self.style, self.style_size).to(device)
            # Not in inference mode, where the task may be first used: it is used in training too.
            with torch.inference_mode(False), torch.no_grad():
                style = [gram(found) for found in network(picture[None])]
            self._moved[device] = _Yardstick(network, style)
        return self._moved[device]

    @cached_property
    def _loaded(self) -> LossNetwork:
        with torch.inference_mode(False):
            return self.loss_network()


class Style(StyleTask):
    """Judged by the trained VGG16: content by relu2_2, style by relu1_2, relu2_2, relu3_3 and
    relu4_3.

    Args:
        facts: of the data.
        style: one of attnlab's own pictures, or the path of one.
        style_size: what its short side is scaled to.
        content_weight: of the content loss.
        style_weight: of the style loss.
        weights: the file of VGG16's weights; torchvision's cache when None. Nothing is fetched.
        maps: how many of the four maps, from the first; fewer take less time.
    """

    file_options = ("style", "weights")
    yardstick_options = ("weights", "maps")
    metrics = (
        Metric(name="vgg_loss", label="VGG16 loss", better="lower"),
        Metric(name="vgg_content", label="content loss (VGG16)", better="lower"),
        Metric(
            name="vgg_style", label="style loss (VGG16) × 10⁴", scale=1e4, better="lower", digits=3
        ),
        VARIATION,
    )

    def __init__(
        self,
        facts: Facts,
        style: str = "strokes",
        style_size: int = 192,
        content_weight: float = 1.0,
        style_weight: float = 2e4,
        weights: str | None = None,
        maps: int = len(VGG_MAPS),
    ) -> None:
        super().__init__(facts, style, style_size, content_weight, style_weight)
        if not CONTENT < maps <= len(VGG_MAPS):
            raise OptionError(f"Expected maps to be from 2 to {len(VGG_MAPS)} but got {maps}.")
        self.weights, self.maps = weights, maps

    @classmethod
    def files(cls, options: Mapping[str, Value]) -> dict[str, Path]:
        weights = options.get("weights")
        file = vgg16_file(None if weights is None else str(weights))
        return {**super().files(options), "weights": file}

    def loss_network(self) -> LossNetwork:
        return VGG16(vgg16_file(self.weights), self.maps)


class StyleFilters(StyleTask):
    """Judged by random filters at several sizes, which need no file."""

    metrics = (
        Metric(name="filter_loss", label="filter loss", better="lower"),
        Metric(name="filter_content", label="content loss (filters)", better="lower", digits=3),
        Metric(
            name="filter_style",
            label="style loss (filters) × 10⁴",
            scale=1e4,
            better="lower",
            digits=3,
        ),
        VARIATION,
    )

    def loss_network(self) -> LossNetwork:
        return RandomFilters()


class _Figures(TaskMeters[dict[str, Tensor]]):
    """Means over photographs of what `predict` found."""

    def __init__(self, names: tuple[str, ...], device: torch.device) -> None:
        self._means = Means(names, device)

    def update(self, predictions: dict[str, Tensor], targets: Tensor) -> None:
        del targets
        self._means.update(predictions)

    def compute(self) -> dict[str, float | None]:
        return {**self._means.compute()}
