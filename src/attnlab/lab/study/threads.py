"""How many threads each process of a study has. They decide in which order sums are taken, and so
the bits of the weights: two epochs on digits ended at 53.2 % with one thread, at 34.0 % with two.
So they are part of what a run is."""

from __future__ import annotations

import os


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def number_of_gpus() -> int:
    """The GPUs that torch may use."""
    import torch

    return torch.cuda.device_count()


def threads_of_environment() -> int | None:
    """Return what OMP_NUM_THREADS asks for; None if it is not set, or is not a number of
    threads."""
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) > 0 else None


def default_threads(slots: int | None = None) -> int:
    """Return the threads of OMP_NUM_THREADS, else the cores divided among the runs at a time."""
    return threads_of_environment() or max(1, cores() // (slots or number_of_gpus() or cores()))
