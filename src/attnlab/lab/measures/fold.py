"""What folding does to a finished network, where its gates are constant."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from attnlab._errors import DoesNotApplyError, FoldError
from attnlab.instruments.config import MeasureConfig
from attnlab.instruments.measurement import Measurement
from attnlab.lab.training.evaluate import evaluate
from attnlab.subject import Subject
from attnlab.surgery.folding import FoldReceipt, has_constant_gates
from attnlab.surgery.folding.fold import fold


class FoldMeasurement(Measurement):
    """The receipt of the fold, with the task's metrics without the gates."""

    name = "fold"

    def settings(self, config: MeasureConfig) -> dict[str, int] | None:
        del config
        return {}

    def measure(self, subject: Subject, config: MeasureConfig, folder: Path) -> FoldReceipt:
        del config, folder
        if not has_constant_gates(subject.network):
            raise DoesNotApplyError
        try:
            plain, receipt = fold(subject.network, example=next(subject.inputs(1)))
        except FoldError as error:
            raise DoesNotApplyError(f"Not folded: {str(error).splitlines()[0]}") from None
        values = evaluate(
            plain, subject.learned(), subject.images(), subject.batch_size, subject.device
        )
        return replace(receipt, values=values)
