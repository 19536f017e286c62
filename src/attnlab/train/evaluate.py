"""Accuracy and loss on the test images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.train.batches import evaluation_chunks
from attnlab.train.data import Data

if TYPE_CHECKING:
    from lightning_fabric import Fabric

FIVE = 5


@dataclass(frozen=True)
class Accuracy:
    """Shares of the test images."""

    loss: float
    top1: float
    top5: float | None
    """None where five guesses would always be right."""


def evaluate(
    fabric: Fabric, network: nn.Module, data: Data, batch_size: int, channels_last: bool = False
) -> Accuracy:
    """Test `network`, each process on its part of the images."""
    chunks = evaluation_chunks(data.facts.test, batch_size, fabric.global_rank, fabric.world_size)
    sums = torch.zeros(4, dtype=torch.float64, device=fabric.device)
    training = network.training
    network.eval()
    with torch.inference_mode(), fabric.autocast():
        for images, labels in data.testing(chunks, fabric.device):
            if channels_last:
                images = images.contiguous(memory_format=torch.channels_last)
            logits = network(images).float()
            guesses = logits.topk(min(FIVE, logits.shape[1]), dim=1).indices == labels[:, None]
            loss = F.cross_entropy(logits, labels, reduction="sum")
            count = torch.tensor(len(labels), device=fabric.device)
            sums += torch.stack([loss.double(), guesses[:, 0].sum(), guesses.sum(), count])
    network.train(training)
    loss_sum, first, five, images_seen = summed(fabric, sums)
    return Accuracy(
        loss_sum / images_seen,
        first / images_seen,
        five / images_seen if data.facts.classes > FIVE else None,
    )


def summed(fabric: Fabric, sums: Tensor) -> list[float]:
    """The sums over all processes."""
    total = fabric.all_reduce(sums, reduce_op="sum")
    assert isinstance(total, Tensor)
    return total.tolist()
