"""What a study measures of a finished run: which instrument, on how much, and of which runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import NonNegativeInt, PositiveInt, StrictBool, model_validator

from attnlab._errors import OptionError
from attnlab._strict import Strict
from attnlab.results.base import Result

if TYPE_CHECKING:
    from attnlab.subject import Subject


class MeasureConfig(Strict):
    """What is measured beside the task's metrics. It is not part of a run: measuring more or less
    never trains anything again."""

    images: NonNegativeInt = 256
    """On how many test images TNS, NSI and the gates are measured; 0 leaves them out, and the
    confusion of classes, which is over all test images, as well."""
    every_epoch: StrictBool | PositiveInt = False
    """Whether states, NSI, TNS, gates and attention are also measured after every epoch (of a
    recipe in steps: every interval), while a run trains; a number says on how many test images,
    else it is as many as `images`."""

    @model_validator(mode="after")
    def _on_something(self) -> MeasureConfig:
        if self.every_epoch is True and not self.images:
            raise OptionError(
                "every_epoch = true measures on as many images as `images` says, and that is 0. "
                "Say on how many: every_epoch = 16."
            )
        return self

    inference_images: NonNegativeInt = 256
    """Test images in the batch on which the networks of a study are timed, interleaved, at its end,
    at most as many as are tested at a time; 0 leaves it out."""
    pictures: NonNegativeInt = 0
    """The number of test images of which pictures are kept, where the task makes some."""
    corruptions: NonNegativeInt = 0
    """On how many test images a classifier is tested under every corruption at five strengths, with
    its calibration; 0 leaves it out."""
    trajectory: NonNegativeInt = 0
    """On how many test images the trajectory is kept, for how near each network is to the best one;
    64 are enough, 0 leaves it out."""


class Measurement(ABC):
    """An instrument as a study uses it. Its result is measured/NAME.json of the run's directory."""

    name: ClassVar[str]
    """The instrument's, which is in the middle of its result's format."""

    def applies(self, folder: Path) -> bool:
        """Return whether it makes sense for the run in `folder`, as far as that is known without
        its network."""
        del folder
        return True

    @abstractmethod
    def settings(self, config: MeasureConfig) -> dict[str, int] | None:
        """On how many inputs it is measured; None if `config` does not ask for it."""

    @abstractmethod
    def measure(self, subject: Subject, config: MeasureConfig, folder: Path) -> Result:
        """Use the instrument; pictures go to files in `folder`, the run's directory. A
        `DoesNotApplyError` says that there is nothing to measure of this network, and why."""
