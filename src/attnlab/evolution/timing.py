"""How long a layer takes: the smallest process time of a few calls, forward and with backward."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn


def smallest_time(run: Callable[[], object], calls: int = 5) -> float:
    """Seconds of process time of the fastest of `calls` calls, after one that is not counted.

    Process time over threads: a machine that is busy with other work does not add to it.
    """
    run()
    best = float("inf")
    for _ in range(calls):
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return best


def timed(layer: nn.Module, x: Tensor, calls: int = 5) -> tuple[float, float]:
    """Seconds of the forward pass, and of forward with backward to the input and parameters."""

    def forward() -> Tensor:
        with torch.no_grad():
            return layer(x)

    gradient = torch.ones_like(forward())
    source = x.detach().requires_grad_()

    def both() -> None:
        layer(source).backward(gradient)
        source.grad = None
        layer.zero_grad(set_to_none=True)

    return smallest_time(forward, calls), smallest_time(both, calls)
