"""What folding does to a finished network, where its gates are constant."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from attnlab._errors import FoldError
from attnlab.instruments.config import MeasureConfig
from attnlab.instruments.measurement import Finding, Measurement
from attnlab.lab.training.evaluate import evaluate
from attnlab.subject import Subject
from attnlab.surgery.folding import has_constant_gates
from attnlab.surgery.folding.fold import fold


class Fold(Measurement):
    """The receipt of the fold, with the task's metrics without the gates."""

    name = "fold"

    def settings(self, config: MeasureConfig) -> dict[str, int] | None:
        del config
        return {}

    def measure(self, subject: Subject, config: MeasureConfig, folder: Path) -> Finding:
        del config, folder
        if not has_constant_gates(subject.network):
            return Finding(None)
        try:
            plain, receipt = fold(subject.network, example=next(subject.inputs(1)))
        except FoldError as error:
            return Finding(None, (f"Not folded: {str(error).splitlines()[0]}",))
        values = evaluate(
            plain, subject.learned(), subject.images(), subject.batch_size, subject.device
        )
        content: dict[str, Any] = json.loads(replace(receipt, values=values).to_json())
        return Finding(content, receipt.notes)
