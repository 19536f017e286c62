"""What changes of an output are called where they are printed. Apart from what computes them,
because a page that shows a result needs no network."""

from __future__ import annotations

TOTAL_CHANGE = "total change of the output"
"""What `attnlab.surgery.change.total_change` is called."""
MEAN_IMAGE_CHANGE = "mean change of the output per image"
"""What `attnlab.surgery.change.mean_image_change` is called."""


def largest_in_words(largest: float, relative: float) -> str:
    """`max |Δ| 3.22 (0.864 of max |y|)`."""
    return f"max |Δ| {largest:.3g} ({relative:.3g} of max |y|)"
