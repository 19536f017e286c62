"""What Ultralytics calls its tasks, and where it has their networks, trainers and validators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import nn
    from ultralytics.engine.trainer import BaseTrainer
    from ultralytics.engine.validator import BaseValidator

STRIDE = 32
"""Of the networks that are trained here: sides of images are multiples of it."""
_LEARNING = (
    *("optimizer", "lr0", "lrf", "momentum", "weight_decay", "cos_lr", "nbs", "freeze"),
    *("warmup_epochs", "warmup_momentum", "warmup_bias_lr"),
    *("amp", "cache", "deterministic", "device", "workers"),
)
_COLOURS = ("hsv_h", "hsv_s", "hsv_v", "scale", "flipud", "fliplr")
_OBJECTS = (
    *("box", "cls", "dfl", "cls_pw", "multi_scale", "rect", "close_mosaic"),
    *("degrees", "translate", "shear", "perspective", "bgr", "mosaic", "mixup", "cutmix"),
)
OBJECT_VALIDATION = ("conf", "iou", "max_det", "agnostic_nms")


@dataclass(frozen=True)
class Kind:
    """One of Ultralytics' tasks."""

    name: Literal["detect", "segment", "pose", "classify"]
    what: str
    """What its network is, for messages."""
    prefix: str
    """What the names of its network, trainer and validator begin with."""
    heads: tuple[str, ...]
    """The classes that a network of it may end in."""
    example: str
    settings: tuple[str, ...]
    """The settings of Ultralytics that do something in a training of this kind."""
    validation: tuple[str, ...] = OBJECT_VALIDATION

    def network(self) -> type[nn.Module]:
        """The class of its networks."""
        from ultralytics.nn import tasks

        found: type[nn.Module] = getattr(tasks, self.prefix + "Model")
        return found

    def trainer(self) -> type[BaseTrainer]:
        """The class of its trainers."""
        return self._of_yolo("Trainer")

    def validator(self) -> type[BaseValidator]:
        """The class of its validators."""
        return self._of_yolo("Validator")

    def _of_yolo(self, what: str) -> type:
        from ultralytics.models import yolo

        found: type = getattr(getattr(yolo, self.name), self.prefix + what)
        return found


DETECT = Kind(
    "detect",
    "detector",
    "Detection",
    ("Detect", "v10Detect"),
    "yolo11n",
    (*_LEARNING, *_COLOURS, *_OBJECTS),
)
SEGMENT = Kind(
    "segment",
    "segmenter of objects",
    "Segmentation",
    ("Segment",),
    "yolo11n-seg",
    (
        *(*_LEARNING, *_COLOURS, *_OBJECTS),
        *("overlap_mask", "mask_ratio", "copy_paste", "copy_paste_mode"),
    ),
)
POSE = Kind(
    "pose",
    "finder of points",
    "Pose",
    ("Pose",),
    "yolo11n-pose",
    (*_LEARNING, *_COLOURS, *_OBJECTS, "pose", "kobj"),
)
CLASSIFY = Kind(
    "classify",
    "classifier",
    "Classification",
    ("Classify",),
    "yolo11n-cls",
    (*_LEARNING, *_COLOURS, "dropout", "auto_augment", "erasing"),
    (),
)
KINDS = (DETECT, SEGMENT, POSE, CLASSIFY)
TITLES = {
    "detect": "ultralytics",
    "segment": "ultralytics-segment",
    "pose": "ultralytics-pose",
    "classify": "ultralytics-classify",
}
"""What our tasks are called."""
