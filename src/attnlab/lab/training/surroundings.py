"""What a run changes in its process while it trains, and puts back."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.utils.deterministic


@contextmanager
def deterministically(threads: int | None) -> Iterator[None]:
    """Deterministic algorithms, own random state and threads; all as before afterwards."""
    switches: Any = torch.utils.deterministic
    before = (
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        switches.fill_uninitialized_memory,
    )
    if threads is not None:
        torch.set_num_threads(threads)
    # Some operations on GPUs have no deterministic form; there a run repeats only nearly.
    torch.use_deterministic_algorithms(not torch.cuda.is_available(), warn_only=True)
    switches.fill_uninitialized_memory = False  # costs time, changes no result
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(before[0])
        torch.use_deterministic_algorithms(before[1], warn_only=before[2])
        switches.fill_uninitialized_memory = before[3]


@contextmanager
def terminating() -> Iterator[None]:
    """SIGTERM ends the run as an exception, so that half-written files are removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _: Any) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
