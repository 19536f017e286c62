"""Tasks whose network is one of `attnlab.create`, so that anybody can build it again."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from attnlab.data import Batch
from attnlab.networks.create import create
from attnlab.tasks.task import Task


class CreatedTask(Task):
    """What remains is the loss and the metrics."""

    @property
    @abstractmethod
    def num_classes(self) -> int | None:
        """For `attnlab.create`."""

    def build(self, backbone: str, options: Mapping[str, Any]) -> nn.Module:
        return create(backbone, self.num_classes, **options)

    def inputs(self, batch: Batch) -> Tensor:
        images: Tensor = batch.inputs
        return images
