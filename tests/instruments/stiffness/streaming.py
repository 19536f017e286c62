"""All stiffness metrics over one data set; as a script, one of several gloo processes doing so."""

from __future__ import annotations

import multiprocessing
import sys

import torch
import torch.distributed as dist

from attnlab.instruments.stiffness import metrics

STAGES = torch.arange(54) // 18


def data(inputs: int = 400, seed: int = 0) -> torch.Tensor:
    """NSI of a CIFAR-sized network: log-normal over inputs, and three inputs that are skipped."""
    generator = torch.Generator().manual_seed(seed)
    scale = torch.rand(54, generator=generator).double() + 0.2
    z = scale * torch.randn(inputs, 54, generator=generator).double().mul(0.3).exp()
    z[5, 7] = torch.nan
    z[17, 40] = torch.inf
    z[inputs - 1, 1] = torch.nan
    z[:, [0, 18]] = torch.nan  # first of a stage: no NSI, and no reason to skip
    return z


def build(**options) -> dict[str, metrics.StiffnessMetric]:
    return {
        "inputs": metrics.CountedInputs(STAGES, **options),
        "nsi": metrics.NeuralStiffnessIndex(STAGES, **options),
        "tns": metrics.TotalNeuralStiffness(STAGES, **options),
        "surface": metrics.StiffnessSurface(STAGES, **options),
        "proportion": metrics.StiffnessProportion(STAGES, **options),
        "stiffest": metrics.StiffestStepCounter(STAGES, **options),
    }


def flat(result) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else list(result)


def run(rows: torch.Tensor, batch: int, **options) -> dict[str, list[torch.Tensor]]:
    found = {}
    for name, metric in build(**options).items():
        for part in rows.split(batch):
            metric.update(part)
        found[name] = flat(metric.compute())
    return found


def main(rank: int, world: int, folder: str) -> None:
    """Measure with the first 1, then the first 2, then all `world` processes."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world
    )
    for number in (1, 2, 4):
        group = dist.new_group(list(range(number)))
        if rank < number:
            found = run(data()[rank::number], batch=31 + rank, process_group=group)
            torch.save(found, f"{folder}/{number}-{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    # Forked, so that four processes pay for one import.
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=main, args=(rank, 4, sys.argv[1])) for rank in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    sys.exit(max(worker.exitcode for worker in workers))
