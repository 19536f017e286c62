"""When do gates settle, and is it the gates or the learning rate? ASR, Figures 6–13 and 17–23.

    attnlab study run asr-settling --small
    python examples/settling_gates.py
    python examples/settling_gates.py --out runs --study asr-settling-small --figure settling.svg

The four questions are those of the study's file. d is the median over channels of the change of a
gate within an epoch, averaged over the gates of a network. Ratios are averaged over seeds as
logarithms, with 95 % Student-t intervals.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

import numpy as np

from attnlab.instruments.stripe import GateHistory, StripeResult
from attnlab.instruments.stripe.result import ALIKE
from attnlab.lab.statistics import paired_difference
from attnlab.page.plot import Spec, write_svg
from attnlab.results.epoch import EpochRecord
from attnlab.results.record import RunRecord, StudyRecord, read_record


class Settling(NamedTuple):
    """How the gates of one run moved."""

    moves: list[float]
    """d of every epoch after the first."""
    rates: list[float]
    """The learning rate of these."""

    def ratios(self) -> list[float]:
        """d of an epoch over that of the one before it."""
        return [after / before for before, after in pairwise(self.moves)]


def settling(history: Sequence[EpochRecord], image: bool) -> Settling:
    """Of the mean gates of a run, or with `image` of those of one image."""
    gates = GateHistory.of_records(history, image=image)
    by_gate = [np.median(gates.difference(name), axis=1) for name in gates.means]
    return Settling(np.mean(by_gate, axis=0).tolist(), [each.lr for each in history][1:])


def first_drop(rates: Sequence[float]) -> int | None:
    """Where among these epochs the learning rate first is a fifth or less of that before."""
    steps = enumerate(pairwise(rates))
    return next((i for i, (before, after) in steps if after <= before / 5), None)


def interval(values: dict[int, float]) -> str:
    """The geometric mean over seeds with its interval."""
    logs = {seed: math.log(value) for seed, value in values.items()}
    found = paired_difference(logs, dict.fromkeys(logs, 0.0))
    if found.low is None or found.high is None:
        return f"{math.exp(found.mean):.3f} [–]"
    return f"{math.exp(found.mean):.3f} [{math.exp(found.low):.3f}, {math.exp(found.high):.3f}]"


def answer(runs: Sequence[RunRecord], drop: int, image: bool) -> str:
    """The first three answers about one row of one group."""
    found = {run.entry.seed: settling(run.stored.history, image) for run in runs}
    at_drop = {seed: each.ratios()[drop] for seed, each in found.items()}
    per_rate = {
        seed: at_drop[seed] / (each.rates[drop + 1] / each.rates[drop])
        for seed, each in found.items()
    }
    least = sum(min(each.ratios()) == at_drop[seed] for seed, each in found.items())
    return f"{interval(at_drop)} | {least} of {len(runs)} | {interval(per_rate)}"


def stripes(runs: Sequence[RunRecord]) -> str:
    """The fourth: gates that are stripes at the end, and the median ratio of spreads."""
    found = [run.measured(StripeResult) for run in runs]
    ratios = [[site.ratio for site in each.sites] for each in found if each is not None]
    known = [[ratio for ratio in each if ratio is not None] for each in ratios]
    share = fmean(sum(ratio < ALIKE for ratio in each) / len(each) for each in known)
    middle = fmean(median(each) for each in known)
    return f"{100 * share:.0f} % | {middle:.2f}"


def report(record: StudyRecord) -> None:
    """A line for every row of every group, of the mean over images and of one image."""
    drops = [first_drop(settling(run.stored.history, False).rates) for run in record.finished]
    known = [drop for drop in drops if drop is not None]
    if not known:
        raise SystemExit("Expected a recipe whose learning rate drops, but none of the study does.")
    print("| recipe | gate | of | after / before | smallest | per rate | stripes | ratio |")
    print("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for group in record.table.groups:
        for row in group.rows:
            runs = record.of(group, row.label)
            for image in (False, True) if runs else ():
                of = "one image" if image else "mean"
                line = answer(runs, known[0], image)
                print(f"| {group.name} | {row.label} | {of} | {line} | {stripes(runs)} |")


def curves(record: StudyRecord) -> Spec:
    """d over epochs, geometric mean over seeds: one line for every recipe and gate."""
    values = []
    for group in record.table.groups:
        for row in group.rows:
            runs = record.of(group, row.label)
            moves = [settling(run.stored.history, False).moves for run in runs]
            for epoch, each in enumerate(zip(*moves, strict=True), 2):
                mean = math.exp(fmean(map(math.log, each)))
                label = f"{row.label}, {group.data}"
                values.append({"epoch": epoch, "change": mean, "of": label})
    return {
        "width": 460,
        "height": 260,
        "data": {"values": values},
        "mark": {"type": "line", "point": True},
        "encoding": {
            "x": {"field": "epoch", "type": "quantitative", "axis": {"tickMinStep": 1}},
            "y": {
                "field": "change",
                "type": "quantitative",
                "scale": {"type": "log"},
                "title": "median change of a gate",
            },
            "color": {"field": "of", "type": "nominal", "title": None},
        },
    }


def main() -> None:
    """Print the answers; with --figure also draw the curves."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--study", default="asr-settling-small")
    parser.add_argument("--figure", type=Path, help="an SVG of the change over epochs")
    asked = parser.parse_args()
    record = read_record(asked.out, asked.study)
    report(record)
    if asked.figure is not None:
        write_svg(curves(record), asked.figure)


if __name__ == "__main__":
    main()
