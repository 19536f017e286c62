"""The gates of a finished network over test images, in a study."""

from __future__ import annotations

from pathlib import Path

from attnlab._errors import DoesNotApplyError, StepsNotFoundError
from attnlab.instruments.config import MeasureConfig
from attnlab.instruments.measurement import Measurement
from attnlab.instruments.stripe.measure import stripe
from attnlab.instruments.stripe.result import StripeResult
from attnlab.residuals.gates import has_gates
from attnlab.subject import Subject


class StripeMeasurement(Measurement):
    """All that `attnlab.stripe` finds about the gates of the network, on test images."""

    name = "stripe"

    def settings(self, config: MeasureConfig) -> dict[str, int] | None:
        return {"images": config.images} if config.images else None

    def measure(self, subject: Subject, config: MeasureConfig, folder: Path) -> StripeResult:
        del folder
        if not has_gates(subject.network):
            raise DoesNotApplyError
        try:
            return stripe(subject.network, subject.inputs(config.images))
        except StepsNotFoundError as error:
            raise DoesNotApplyError(str(error)) from None
