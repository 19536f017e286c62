"""What watching costs a training: one measurement of 32 images against the steps between two.

    python benchmarks/callbacks.py --json callbacks.json

Measured in turns in one process: a training step of a batch of 128, one measurement.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

import torch

import attnlab
from attnlab.bridges.probe import EVERY, Probe, StiffnessProbe, StripeProbe


def seconds_of(action) -> float:
    began = perf_counter()
    action()
    return perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = []
    for backbone in ("resnet20", "resnet56"):
        torch.manual_seed(0)
        model, _ = attnlab.insert(attnlab.create(backbone), "se")
        images = torch.randn(128, 3, 32, 32)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step(model=model, images=images, optimizer=optimizer) -> None:
            optimizer.zero_grad()
            model.train()(images).square().mean().backward()
            optimizer.step()

        for kind in (StiffnessProbe, StripeProbe):
            probe: Probe = kind(images[:32], 1)
            steps, measured = [], []
            for turn in range(given.turns + 1):
                steps.append(seconds_of(step))
                measured.append(seconds_of(partial(probe.at, model, turn)))
            cost = median(m / s for s, m in zip(steps[1:], measured[1:], strict=True))
            rows.append({"network": backbone, "probe": kind.__name__, "steps": cost})
            print(
                f"{backbone:9} {kind.__name__:15} {cost:5.2f} steps, {cost / EVERY:.2%} at {EVERY}"
            )
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
