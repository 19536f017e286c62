"""COCO's average precision of boxes.

torchmetrics with faster-coco-eval, given its thresholds in float64: torchmetrics' own come from
float32, where a recall of 1/10 lies below the threshold 0.1, and its AP is off by up to 8.5e-4.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from torch import Tensor

from attnlab._errors import OptionError

if TYPE_CHECKING:
    from torchmetrics.detection import MeanAveragePrecision

Found = dict[str, Tensor]
"""The objects of one image: `boxes`, `labels`, and `scores` of predictions or `area` and `iscrowd`
of truth."""

OVERLAPS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0, 1, 101)
_SIZES = {"all": 0, "small": 1, "medium": 2, "large": 3}
_MOST = (1, 10, 100)
"""Numbers of detections per image that COCO counts."""


class Precision(NamedTuple):
    """COCO's arrays in float64; NaN where a category has no object of a size."""

    labels: tuple[int, ...]
    precision: np.ndarray
    """(overlaps, recalls, labels, sizes), of 100 detections per image."""
    recall: np.ndarray
    """(overlaps, labels, sizes), of 100 detections per image."""

    def average(
        self, size: str = "all", overlap: float | None = None, label: int | None = None
    ) -> float | None:
        """AP, or at one overlap AP50 and AP75; of all labels or of one; None without an object."""
        part = self.precision[..., _SIZES[size]]
        if overlap is not None:
            part = part[[int(np.argmin(abs(overlap - OVERLAPS)))]]
        if label is not None:
            part = part[..., [self.labels.index(label)]] if label in self.labels else part[..., :0]
        return _mean(part)

    def average_recall(self) -> float | None:
        return _mean(self.recall[..., _SIZES["all"]])

    def curve(self, label: int, overlap: float = 0.5) -> np.ndarray:
        """Precision at each of `RECALLS`, at one overlap."""
        at = int(np.argmin(abs(overlap - OVERLAPS)))
        found: np.ndarray = self.precision[at, :, self.labels.index(label), _SIZES["all"]]
        return found


def average_precision(predictions: Sequence[Found], targets: Sequence[Found]) -> Precision:
    """Compute the average precision over some images, in one process."""
    metric = _metric()
    metric.update(list(predictions), list(targets))
    with contextlib.redirect_stdout(io.StringIO()):  # the library prints its tables
        found = metric.compute()
    arrays = [np.asarray(found[name], dtype=np.float64) for name in ("precision", "recall")]
    precision, recall = (np.where(each < 0, np.nan, each)[..., -1] for each in arrays)
    return Precision(tuple(found["classes"].reshape(-1).tolist()), precision, recall)


def check_coco_eval_installed() -> None:
    """Raise `OptionError` unless the libraries of the metric, which are an extra, are installed."""
    try:
        import faster_coco_eval  # noqa: F401
    except ImportError:
        raise OptionError(
            "Task 'detection' needs the package faster-coco-eval, which is not installed: pip "
            "install 'attnlab[detect]'."
        ) from None


def _metric() -> MeanAveragePrecision:
    from torchmetrics.detection import MeanAveragePrecision  # takes seconds

    return MeanAveragePrecision(
        backend="faster_coco_eval",
        iou_thresholds=OVERLAPS.tolist(),
        rec_thresholds=RECALLS.tolist(),
        max_detection_thresholds=list(_MOST),
        extended_summary=True,
        sync_on_compute=False,  # it cannot gather from processes with different numbers of images
    )


def _mean(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None
