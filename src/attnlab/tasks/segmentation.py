"""A class for every pixel."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab._errors import InputError, OptionError
from attnlab.data import Batch, Facts, Value
from attnlab.data.masks import IGNORED
from attnlab.data.pictures import png
from attnlab.networks.backbones import BACKBONES
from attnlab.results.details import Breakdown, DetailsResult, MaskPicture
from attnlab.results.metric import Metric
from attnlab.tasks._mask_metrics import border_score, overlap, soft_dice
from attnlab.tasks.task import CreatedTask, Loss, Means, TaskMeters

_PICTURES = 6
"""Test images that a page shows."""
_LARGEST = 160
"""Pixels of the long side of a picture."""


def _share(name: str, label: str) -> Metric:
    return Metric(name=name, label=label, unit="%", scale=100, least=0, most=1)


class Segmentation(CreatedTask[Sequence[Tensor]]):
    """Cross-entropy of pixels, and Dice's loss; the result is the mean intersection over union.

    Networks of attnlab (`unet`), segmentation_models_pytorch (`smp:unet`), torchvision
    (`torchvision:fcn_resnet50`) and your own: one that answers with a tensor, with torchvision's
    dictionary, or with logits of another size, which are then enlarged to that of the image.

    Args:
        facts: of the data.
        dice: weight of Dice's loss beside the cross-entropy; 0 leaves it out.
        auxiliary: weight of the loss of a second answer ("aux"), where the network gives one.
        window: in testing, an image is cut into windows of this side that overlap by half, and
            logits are averaged; 0 takes it whole.
        multiple: images are enlarged at their right and bottom to a multiple of this, for networks
            that take no others, and the answer is cut; networks of smp need 32.
    """

    targets = "masks"
    mean_of_inputs = False  # the mean is over known pixels, and Dice's sums are over the batch
    metrics = (
        _share("miou", "mIoU"),
        _share("pixel_accuracy", "pixels right"),
        _share("border_f", "border F"),
        Metric(name="loss", label="test loss", better="lower", least=0, digits=3),
    )

    def __init__(
        self,
        facts: Facts,
        dice: float = 1.0,
        auxiliary: float = 0.5,
        window: int = 0,
        multiple: int = 1,
    ) -> None:
        super().__init__(facts)
        for name, value, least in (
            ("dice", dice, 0),
            ("auxiliary", auxiliary, 0),
            ("window", window, 0),
            ("multiple", multiple, 1),
        ):
            if not least <= value < math.inf:
                raise OptionError(f"Expected {name} to be at least {least} but got {value}.")
        self.dice, self.auxiliary = dice, auxiliary
        self.window, self.multiple = window, multiple

    @property
    def num_classes(self) -> int:
        return self.facts.outputs

    def check(self, backbone: str, options: Mapping[str, Value]) -> None:
        del options
        if backbone in BACKBONES and not BACKBONES[backbone].of_pixels:
            fitting = [name for name, info in BACKBONES.items() if info.of_pixels]
            raise OptionError(
                f"{backbone!r} answers once for an image, and task 'segmentation' needs an answer "
                f"for every pixel. Expected {', '.join(fitting)}, smp:NAME, a network for masks of "
                f"torchvision such as torchvision:fcn_resnet50, or your own."
            )

    def loss(self, network: nn.Module, batch: Batch) -> Loss:
        masks: Tensor = batch.targets
        logits, second = _answers(network(batch.inputs), masks.shape[-2:], self.num_classes)
        parts = {"cross-entropy": _cross_entropy(logits, masks)}
        if self.dice:
            parts["dice"] = self.dice * soft_dice(logits, masks)
        if second is not None and self.auxiliary:
            parts["auxiliary"] = self.auxiliary * _cross_entropy(second, masks)
        known = masks != IGNORED
        right = (logits.detach().argmax(1) == masks)[known].double()
        figures = {"pixel_accuracy": right.mean()} if len(right) else {}
        mean = torch.stack(list(parts.values())).sum()
        return Loss(mean, figures, {name: part.detach().double() for name, part in parts.items()})

    def predict(self, network: nn.Module, batch: Batch) -> list[Tensor]:
        """Return the logits (classes, H, W) of each image."""
        if isinstance(batch.inputs, Tensor):
            return list(self._logits(network, batch.inputs))
        return [self._logits(network, image[None])[0] for image in batch.inputs]

    def _logits(self, network: nn.Module, images: Tensor) -> Tensor:
        if not self.window:
            return self._whole(network, images)
        height, width = images.shape[-2:]
        total = images.new_zeros(len(images), self.num_classes, height, width)
        times = images.new_zeros(height, width)
        for top in window_starts(height, self.window):
            for left in window_starts(width, self.window):
                part = (..., slice(top, top + self.window), slice(left, left + self.window))
                total[part] += self._whole(network, images[part])
                times[part] += 1
        return total / times

    def _whole(self, network: nn.Module, images: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        below, right = (-side % self.multiple for side in (height, width))
        padded = F.pad(images, (0, right, 0, below)) if below or right else images
        logits, _ = _answers(network(padded), padded.shape[-2:], self.num_classes)
        return logits[..., :height, :width].float()

    def meters(self, device: torch.device) -> TaskMeters[Sequence[Tensor]]:
        return _Masks(device, self.num_classes)

    def details(self, network: nn.Module, batches: Iterable[Batch]) -> DetailsResult:
        meters: _Masks | None = None
        pictures: list[MaskPicture] = []
        for batch in batches:
            logits = self.predict(network, batch)
            meters = meters or _Masks(logits[0].device, self.num_classes)
            meters.update(logits, batch.targets)
            for image, answer, mask in zip(batch.inputs, logits, batch.targets, strict=True):
                if len(pictures) < _PICTURES:
                    pictures.append(self._picture(image, answer.argmax(0), mask))
        found = [] if meters is None else meters.overlap().tolist()
        values = {
            name: None if math.isnan(value) else 100 * value
            for name, value in zip(self.facts.categories, found, strict=True)
        }
        by_class = Breakdown(title="Intersection over union by class", unit="%", values=values)
        return DetailsResult(breakdowns=(by_class,), masks=tuple(pictures))

    def _picture(self, image: Tensor, found: Tensor, mask: Tensor) -> MaskPicture:
        step = max(1, -(-max(mask.shape) // _LARGEST))
        small = slice(None, None, step)
        photograph = self.facts.pixels(image)[..., small, small]
        found, mask = found[small, small], mask[small, small]
        wrong = (found != mask) & (mask != IGNORED)
        errors = photograph.mean(0, keepdim=True).expand(3, -1, -1) * 0.6
        errors = torch.where(wrong, errors.new_tensor([0.9, 0.1, 0.1])[:, None, None], errors)
        share = wrong.sum().item() / max(1, int((mask != IGNORED).sum()))
        return MaskPicture(
            image=_encoded(photograph),
            true=_encoded(_coloured(mask)),
            found=_encoded(_coloured(found)),
            errors=_encoded(errors),
            width=photograph.shape[-1],
            height=photograph.shape[-2],
            wrong=share,
        )

    def inputs(self, batch: Batch) -> Tensor:
        """The images of a batch as one tensor; if their sizes differ, the middle of each, as large
        as the smallest."""
        if isinstance(batch.inputs, Tensor):
            return batch.inputs
        sides = [min(image.shape[axis] for image in batch.inputs) for axis in (-2, -1)]
        return torch.stack([_middle(image, sides) for image in batch.inputs])


def window_starts(length: int, window: int) -> list[int]:
    """Return where windows begin along an axis: they overlap by at least a half and end with the
    axis."""
    if length <= window:
        return [0]
    number = -(-(length - window) // max(1, window // 2))
    return [round(place * (length - window) / number) for place in range(number + 1)]


def _cross_entropy(logits: Tensor, masks: Tensor) -> Tensor:
    """The mean over the pixels that count; 0 if none does, where torch's own is NaN."""
    total = F.cross_entropy(logits.float(), masks, ignore_index=IGNORED, reduction="sum")
    return total / (masks != IGNORED).sum().clamp_min(1)


def _answers(answer: object, sides: Sequence[int], classes: int) -> tuple[Tensor, Tensor | None]:
    """The logits of an answer, as large as the image, and those of a second answer if it has one:
    a tensor, torchvision's dictionary, or an object with `logits` as transformers have it."""
    second: Tensor | None = None
    logits = answer
    if isinstance(answer, Mapping) and "out" in answer:
        logits, second = answer["out"], answer.get("aux")
    elif not isinstance(answer, Tensor):
        logits = getattr(answer, "logits", answer)
    if not isinstance(logits, Tensor) or logits.ndim != 4 or logits.shape[1] != classes:
        got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise InputError(
            f"Expected the network to answer with logits N×{classes}×H×W, a map for each class, "
            f"but got {got}. Choose a network for masks: unet, smp:unet, torchvision:fcn_resnet50."
        )
    return _enlarged(logits, sides), None if second is None else _enlarged(second, sides)


def _enlarged(logits: Tensor, sides: Sequence[int]) -> Tensor:
    if tuple(logits.shape[-2:]) == tuple(sides):
        return logits
    return F.interpolate(logits, list(sides), mode="bilinear", align_corners=False)


def _middle(image: Tensor, sides: Sequence[int]) -> Tensor:
    top, left = ((there - side) // 2 for there, side in zip(image.shape[-2:], sides, strict=True))
    return image[..., top : top + sides[0], left : left + sides[1]]


def _coloured(labels: Tensor) -> Tensor:
    """VOC's colours: the bits of a class's number spread over red, green and blue, the last ones
    first; white where nothing counts."""
    numbers = labels.cpu().long()
    colours = torch.zeros(3, *numbers.shape, dtype=torch.long)
    for bit in range(8):
        for channel in range(3):
            colours[channel] |= ((numbers >> (3 * bit + channel)) & 1) << (7 - bit)
    return torch.where(numbers == IGNORED, 255, colours).float() / 255


def _encoded(picture: Tensor) -> str:
    return b64encode(png(picture)).decode()


class _Masks(TaskMeters[Sequence[Tensor]]):
    """Counts pixels by true and found class, over all images and processes."""

    def __init__(self, device: torch.device, classes: int) -> None:
        from torchmetrics import SumMetric
        from torchmetrics.classification import MulticlassConfusionMatrix

        self._classes = classes
        self._counts = MulticlassConfusionMatrix(
            classes, ignore_index=IGNORED, validate_args=False
        ).to(device)
        self._loss = Means(("loss",), device)
        self._scores, self._scored = (
            SumMetric().set_dtype(torch.float64).to(device) for _ in range(2)
        )

    def update(self, predictions: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
        for logits, mask in zip(predictions, targets, strict=True):
            if not (mask != IGNORED).any():
                continue
            found = logits.argmax(0)
            self._counts.update(found[None], mask[None])
            self._loss.update({"loss": _cross_entropy(logits[None], mask[None])[None]})
            score = border_score(found, mask, self._classes)
            self._scores.update(score or 0.0)
            self._scored.update(float(score is not None))

    def overlap(self) -> Tensor:
        """Intersection over union of each class; NaN for one that is neither there nor found."""
        return overlap(self._counts.compute())

    def compute(self) -> dict[str, float | None]:
        counts = self._counts.compute().double()
        scored = float(self._scored.compute())
        return {
            "miou": float(overlap(counts).nanmean()),
            "pixel_accuracy": float(counts.diagonal().sum() / counts.sum()),
            "border_f": float(self._scores.compute()) / scored if scored else None,
            **self._loss.compute(),
        }
