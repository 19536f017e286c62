"""Tasks whose network is a backbone with one output per class, label or value."""

from __future__ import annotations

from torch import Tensor, nn

from attnlab.data import Batch
from attnlab.tasks.created import CreatedTask


class OutputsTask(CreatedTask):
    """What remains is the loss and the metrics."""

    @property
    def num_classes(self) -> int:
        return self.facts.outputs

    def predict(self, network: nn.Module, batch: Batch) -> Tensor:
        outputs: Tensor = network(batch.inputs)
        return outputs.float()
