"""Which steps of a trained language model do the work?

    attnlab study run language-all-gates
    python examples/steps_left_out.py                     after it, from the same folder

Takes the plain networks of that study, one per seed. Each step is left out alone; then steps are
left out one after the other, in the order of what that cost: ranked on one half of the validation
windows and judged on the other. Losses are what is added to that of the whole network, in nats.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

import torch
from torch.nn import functional as F

import attnlab
from attnlab.instruments.removal.trial import RemovalTrial
from attnlab.lab.study import load_study, planned_runs
from attnlab.residuals import StepKey


class LeftOut(NamedTuple):
    """Of one network."""

    steps: tuple[str, ...]
    loss: float
    """Of the whole network, on all windows."""
    alone: tuple[float, ...]
    """Added by leaving out each step alone, on all windows."""
    curve: tuple[float, ...]
    """Added by leaving out the first 1, 2, ... in the order, on the windows that judge."""
    order: tuple[str, ...]


def plain_runs(study: str, out: Path) -> dict[int, Path]:
    """The folders of the plain networks that are trained, by seed."""
    runs = {run.seed: out / run.run_id for run in planned_runs(load_study(study)) if run.cell.plain}
    return {seed: path for seed, path in runs.items() if (path / "result.json").is_file()}


def left_out(folder: Path) -> LeftOut:
    """Measure the network of one run on its validation windows."""
    subject = attnlab.open(folder)
    batch = next(iter(subject.images().testing([subject.chosen()], torch.device("cpu"))))
    tokens, following = batch.inputs, batch.targets
    even, odd = slice(0, None, 2), slice(1, None, 2)
    trial = RemovalTrial(subject.network, [tokens])
    steps = trial.candidates

    def logits(without: Sequence[StepKey]) -> torch.Tensor:
        (found,) = trial.outputs(lambda output: output, without)
        return found

    def loss(of: torch.Tensor, part: slice = slice(None)) -> float:
        return F.cross_entropy(of[part].double().flatten(0, 1), following[part].flatten()).item()

    whole = logits([])
    single = [logits([step.key]) for step in steps]
    costs = [loss(each, even) for each in single]
    order = sorted(range(len(steps)), key=costs.__getitem__)
    firsts = ([steps[place].key for place in order[: k + 1]] for k in range(len(order)))
    return LeftOut(
        steps=tuple(step.label for step in steps),
        loss=loss(whole),
        alone=tuple(loss(each) - loss(whole) for each in single),
        curve=tuple(loss(logits(keys), odd) - loss(whole, odd) for keys in firsts),
        order=tuple(steps[place].label for place in order),
    )


def report(found: Sequence[LeftOut]) -> str:
    """Two tables in Markdown: mean and standard deviation over networks."""

    def rows(names: Sequence[object], columns: Sequence[Sequence[float]]) -> list[str]:
        pairs = zip(names, zip(*columns, strict=True), strict=True)
        return [f"| {name} | {fmean(each):+.3f} ± {stdev(each):.3f} |" for name, each in pairs]

    heads = ("| step left out alone | added loss |", "| steps left out | added loss |")
    rule = "|---|---|"
    alone = rows(found[0].steps, [each.alone for each in found])
    curve = rows(range(1, len(found[0].steps) + 1), [each.curve for each in found])
    return "\n".join([heads[0], rule, *alone, "", heads[1], rule, *curve])


def main() -> None:
    """Measure the networks that are there, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--study", default="language-all-gates")
    asked = parser.parse_args()
    runs = plain_runs(asked.study, asked.out)
    if len(runs) < 2:
        raise SystemExit(
            f"Expected two plain networks or more. Run: attnlab study run {asked.study}"
        )
    found = []
    for seed, folder in runs.items():
        found.append(left_out(folder))
        print(
            f"seed {seed}: loss {found[-1].loss:.4f}, order {' '.join(found[-1].order)}", flush=True
        )
    print(report(found))


if __name__ == "__main__":
    main()
