"""One class per image."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab._errors import OptionError
from attnlab.data import Batch, Facts
from attnlab.results.metric import Metric
from attnlab.tasks.task import Loss, Means, OutputsTask, TaskMeters

FIVE = 5


class Classification(OutputsTask):
    """Cross-entropy; the result is the share of test images whose class is guessed.

    Args:
        facts: of the data.
        label_smoothing: share of the target that is spread over all classes, in training.
    """

    targets = "class"
    metrics = (
        Metric(name="top1", label="top-1", unit="%", scale=100, least=0, most=1),
        Metric(name="top5", label="top-5", unit="%", scale=100, least=0, most=1),
        Metric(name="loss", label="test loss", better="lower", least=0, digits=3),
    )

    def __init__(self, facts: Facts, label_smoothing: float = 0.0) -> None:
        super().__init__(facts)
        if not 0 <= label_smoothing < 1:
            raise OptionError(
                f"Expected label_smoothing to be at least 0 and below 1 but got {label_smoothing}."
            )
        self.label_smoothing = label_smoothing

    def loss(self, network: nn.Module, batch: Batch) -> Loss:
        logits = network(batch.inputs)
        mean = F.cross_entropy(logits, batch.targets, label_smoothing=self.label_smoothing)
        # Of images that were mixed, the class that has the largest share.
        classes = batch.targets if batch.targets.ndim == 1 else batch.targets.argmax(1)
        right = (logits.detach().argmax(1) == classes).double().mean()
        return Loss(mean, {"top1": right})

    def meters(self, device: torch.device) -> TaskMeters[Tensor]:
        return _Accuracy(device, self.facts.outputs)


class _Accuracy(TaskMeters[Tensor]):
    """Five guesses are always right if there are at most five classes: then there is no top-5."""

    def __init__(self, device: torch.device, classes: int) -> None:
        self._five = classes > FIVE
        names = ("top1", "top5", "loss") if self._five else ("top1", "loss")
        self._means = Means(names, device)

    def update(self, predictions: Tensor, targets: Tensor) -> None:
        guesses = predictions.topk(FIVE if self._five else 1, dim=1).indices == targets[:, None]
        loss = F.cross_entropy(predictions, targets, reduction="none")
        found = {"top1": guesses[:, 0], "loss": loss}
        self._means.update(found | ({"top5": guesses.any(1)} if self._five else {}))

    def compute(self) -> dict[str, float | None]:
        return {"top5": None, **self._means.compute()}
