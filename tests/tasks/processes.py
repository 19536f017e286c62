"""All meters over one set of predictions; as a script, two gloo processes that share it."""

from __future__ import annotations

import json
import multiprocessing
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from attnlab.data import Facts
from attnlab.tasks import TaskConfig, build_task

KINDS = {"classification": "class", "multilabel": "labels", "regression": "values"}


def predictions(task: str) -> tuple[torch.Tensor, torch.Tensor]:
    numbers = torch.Generator().manual_seed(len(task))
    made = torch.randn(31, 7, generator=numbers)
    targets = {
        "classification": torch.randint(7, (31,), generator=numbers),
        "multilabel": (torch.rand(31, 7, generator=numbers) < 0.3).long(),
        "regression": made + torch.randn(31, 7, generator=numbers),
    }
    return made, targets[task]


def measured(rank: int, processes: int) -> dict[str, dict[str, float | None]]:
    """By task; the processes hold unequal parts, so averages of averages would differ."""
    found = {}
    for name, kind in KINDS.items():
        facts = Facts("made", kind, 7, (3, 8, 8), 9, 9, (0.0,), (1.0,), "")  # type: ignore[arg-type]
        meters = build_task(TaskConfig(name=name), facts).meters(torch.device("cpu"))
        parts = (each.tensor_split(processes)[rank].split(6) for each in predictions(name))
        for made, known in zip(*parts, strict=True):
            meters.update(made, known)
        found[name] = meters.compute()
    return found


def main(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    place = f"file://{folder}/rendezvous"
    dist.init_process_group("gloo", init_method=place, rank=rank, world_size=2)
    Path(folder, f"{rank}.json").write_text(json.dumps(measured(rank, 2)))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    # Forked, so that both processes pay for one import.
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=main, args=(rank, sys.argv[1])) for rank in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    sys.exit(max(worker.exitcode for worker in workers))
