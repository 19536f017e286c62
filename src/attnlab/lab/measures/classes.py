"""Which classes a finished network takes for which, where its task has classes."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from attnlab.data import class_names
from attnlab.instruments.config import MeasureConfig
from attnlab.instruments.measurement import Finding, Measurement
from attnlab.lab.training.directory import read_config
from attnlab.subject import Subject
from attnlab.tasks import task_class

MOST = 1000
"""Classes up to which the matrix is stored: a million numbers."""


class Classes(Measurement):
    """The confusion matrix of all test images: true class × predicted class."""

    name = "classes"

    def applies(self, folder: Path) -> bool:
        return task_class(read_config(folder).task).targets == "class"

    def settings(self, config: MeasureConfig) -> dict[str, int] | None:
        return {} if config.images else None

    def measure(self, subject: Subject, config: MeasureConfig, folder: Path) -> Finding:
        del config
        facts = subject.images().facts
        if facts.targets != "class" or subject.learned().targets != "class":
            return Finding(None)
        if facts.outputs > MOST:
            return Finding(None, (f"{facts.outputs} classes: no confusion matrix is stored.",))
        counts = torch.zeros(facts.outputs, facts.outputs, dtype=torch.int64)
        chunks = list(torch.arange(facts.test).split(subject.batch_size))
        subject.network.eval()
        with torch.inference_mode():
            for batch in subject.images().testing(chunks, subject.device):
                scores = subject.learned().predict(subject.network, batch)
                if not isinstance(scores, Tensor) or scores.shape[1:] != (facts.outputs,):
                    return Finding(None, ("The task predicts no score per class.",))
                places = batch.targets.cpu() * facts.outputs + scores.argmax(1).cpu()
                counts.view(-1).index_add_(0, places, torch.ones_like(places))
        names = class_names(read_config(folder).data, facts.outputs)
        return Finding({"classes": list(names), "confusion": counts.tolist()})
