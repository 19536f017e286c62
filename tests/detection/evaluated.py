"""A detector that finds something, tested in one process; as a script, in two gloo processes."""

from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from attnlab.data import Augmentation, Data, DataConfig, load_data
from attnlab.lab.training.evaluate import evaluate
from attnlab.tasks import Task, TaskConfig, build_task


class Guesses(nn.Module):
    """Finds every bright or dark spot of an image; it must find something true to be tested on."""

    def __init__(self, truth: dict[float, dict[str, torch.Tensor]]) -> None:
        super().__init__()
        self.truth = truth

    def forward(self, images: list[torch.Tensor]) -> list[dict[str, torch.Tensor]]:
        return [self._found(image) for image in images]

    def _found(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        key = round(float(image.double().sum()), 3)
        target = self.truth[key]
        numbers = torch.Generator().manual_seed(int(key))
        boxes = target["boxes"].repeat(2, 1)
        labels = target["labels"].repeat(2)
        return {
            "boxes": boxes + torch.randn(boxes.shape, generator=numbers) * 2,
            "labels": torch.where(torch.rand(len(labels), generator=numbers) < 0.2, 1, labels),
            "scores": torch.rand(len(labels), generator=numbers),
        }


def prepared() -> tuple[nn.Module, Task, Data]:
    whole = Augmentation(crop="none")
    data = load_data(DataConfig(name="shapes", train_subset=2, test_subset=31, augmentation=whole))
    truth = {}
    for batch in data.testing(list(torch.arange(31).split(31)), torch.device("cpu")):
        for image, target in zip(batch.inputs, batch.targets, strict=True):
            truth[round(float(image.double().sum()), 3)] = target
    return Guesses(truth), build_task(TaskConfig(name="detection"), data.facts), data


def main(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    place = f"file://{folder}/rendezvous"
    dist.init_process_group("gloo", init_method=place, rank=rank, world_size=2)
    found = evaluate(*prepared(), 4, torch.device("cpu"), rank=rank, processes=2)
    Path(folder, f"{rank}.txt").write_text(repr(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    alone = evaluate(*prepared(), 4, torch.device("cpu"))
    Path(sys.argv[1], "one.txt").write_text(repr(alone))
    # Forked, so that both processes pay for one import.
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=main, args=(rank, sys.argv[1])) for rank in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    sys.exit(max(worker.exitcode for worker in workers))
