"""The gates of a finished network over test images, for a study."""

from __future__ import annotations

import json
from pathlib import Path

from attnlab._errors import StepsNotFoundError
from attnlab.instruments.config import MeasureConfig
from attnlab.instruments.measurement import Finding, Measurement
from attnlab.instruments.stripe.measure import stripe
from attnlab.residuals.gates import has_gates
from attnlab.subject import Subject


class Stripes(Measurement):
    """All that `attnlab.stripe` finds about the gates of the network, on test images."""

    name = "stripe"

    def settings(self, config: MeasureConfig) -> dict[str, int] | None:
        return {"images": config.images} if config.images else None

    def measure(self, subject: Subject, config: MeasureConfig, folder: Path) -> Finding:
        del folder
        if not has_gates(subject.network):
            return Finding(None)
        try:
            found = stripe(subject.network, subject.inputs(config.images))
        except StepsNotFoundError as error:
            return Finding(None, (str(error),))
        return Finding(json.loads(found.to_json()), found.notes)
