"""Tasks whose network is a backbone with one output per class, label or value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from attnlab.create import create
from attnlab.data import Batch
from attnlab.tasks.task import Task


class OutputsTask(Task):
    """What remains is the loss and the metrics."""

    def build(self, backbone: str, options: Mapping[str, Any]) -> nn.Module:
        return create(backbone, self.facts.outputs, **options)

    def predict(self, network: nn.Module, batch: Batch) -> Tensor:
        outputs: Tensor = network(batch.inputs)
        return outputs.float()

    def inputs(self, batch: Batch) -> Tensor:
        images: Tensor = batch.inputs
        return images
