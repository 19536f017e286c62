"""NSI and TNS of a finished network."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

from attnlab._errors import StepsNotFoundError
from attnlab.instruments.config import MeasureConfig
from attnlab.instruments.measurement import Finding, Measurement
from attnlab.instruments.stiffness import StiffnessWarning
from attnlab.instruments.stiffness.measure import stiffness
from attnlab.subject import Subject


class Stiffness(Measurement):
    """All that `attnlab.stiffness` says of the network, on test images."""

    name = "stiffness"

    def settings(self, config: MeasureConfig) -> dict[str, int] | None:
        return {"images": config.images} if config.images else None

    def measure(self, subject: Subject, config: MeasureConfig, folder: Path) -> Finding:
        del folder
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", StiffnessWarning)  # its text is among the notes
                found = stiffness(subject.network, subject.inputs(config.images), progress=False)
        except StepsNotFoundError:
            return Finding(None, ("The network has no residual step, so no TNS.",))
        content: dict[str, Any] = json.loads(found.to_json())
        return Finding(_finite(content), found.notes)


def _finite(tree: Any) -> Any:
    """JSON has no NaN: None stands for it."""
    if isinstance(tree, dict):
        return {key: _finite(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_finite(value) for value in tree]
    return None if isinstance(tree, float) and not math.isfinite(tree) else tree
