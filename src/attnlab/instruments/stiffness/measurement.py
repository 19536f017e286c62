"""NSI and TNS, in a study."""

from __future__ import annotations

import warnings
from pathlib import Path

from attnlab._errors import DoesNotApplyError, StepsNotFoundError
from attnlab.instruments.measurement import MeasureConfig, Measurement
from attnlab.instruments.stiffness import StiffnessWarning
from attnlab.instruments.stiffness.measure import stiffness
from attnlab.instruments.stiffness.result import StiffnessResult
from attnlab.subject import Subject


class StiffnessMeasurement(Measurement):
    """All that `attnlab.stiffness` says of the network, on test images."""

    name = "stiffness"

    def settings(self, config: MeasureConfig) -> dict[str, int] | None:
        return {"images": config.images} if config.images else None

    def measure(self, subject: Subject, config: MeasureConfig, folder: Path) -> StiffnessResult:
        del folder
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", StiffnessWarning)  # its text is among the notes
                return stiffness(subject.network, subject.inputs(config.images), progress=False)
        except StepsNotFoundError:
            raise DoesNotApplyError("The network has no residual step, so no TNS.") from None
