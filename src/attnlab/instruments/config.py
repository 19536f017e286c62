"""What is measured, and on how much."""

from __future__ import annotations

from pydantic import NonNegativeInt

from attnlab._strict import Strict


class MeasureConfig(Strict):
    """What is measured beside the task's metrics. It is not part of a run: measuring more or less
    never trains anything again."""

    images: NonNegativeInt = 256
    """On how many test images TNS, NSI and the gates are measured; 0 leaves them out, and the
    confusion of classes, which is over all test images, as well."""
    every_epoch: bool = False
    """Whether TNS and the mean gates are also measured after every epoch, while a run trains."""
    inference_images: NonNegativeInt = 256
    """Test images in the batch on which the networks of a study are timed, interleaved, at its end,
    at most as many as are tested at a time; 0 leaves it out."""
    pictures: NonNegativeInt = 0
    """Of how many test images pictures are kept, where the task makes some."""
    corruptions: NonNegativeInt = 0
    """On how many test images a classifier is tested under every corruption at five strengths, with
    its calibration; 0 leaves it out."""
