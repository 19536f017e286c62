"""What a page shows of a detector: AP by category and size, precision by recall, some images."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

import numpy as np
from PIL import Image
from torch import Tensor

from attnlab.results.details import Breakdown, Curves, DetailsResult, Mark, MarkedPicture
from attnlab.tasks._average_precision import RECALLS, Found, Precision

_SHOWN_SCORE = 0.5
"""Boxes of lower scores are left out of pictures."""
_LARGEST = 160
"""Pixels of the long side of a picture."""
_MOST_CURVES = 12
_SIZES = ("small", "medium", "large")


def details(
    found: Precision, pictures: Sequence[MarkedPicture], categories: Sequence[str]
) -> DetailsResult:
    """Of all test images, with some of them as pictures."""
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
    behind: Sequence[str] = (),
) -> tuple[Mark, ...]:
    found = []
    for number, (box, label) in enumerate(zip(boxes.tolist(), labels.tolist(), strict=True)):
        left, top, right, bottom = (round(edge * scale, 1) for edge in box)
        text = categories[label - 1] + (behind[number] if behind else "")
        found.append(Mark(left=left, top=top, right=right, bottom=bottom, text=text))
    return tuple(found)


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value
