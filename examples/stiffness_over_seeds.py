"""Figures 2, 3, 6 and 7 of StepNet over seeds: how stiff are the networks of a study, trained and
untrained, in three conventions?

    attnlab study run stepnet-table1 --small
    python examples/stiffness_over_seeds.py
    python examples/stiffness_over_seeds.py --out runs --study stepnet-table1-small --figure nsi.svg

The untrained network of a run has the same seed, so the same first weights. Every difference is
paired by seed and has a 95 % interval; the last lines ask whether stiffer rows have better results.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean, median

import attnlab
from attnlab._ranks import rank_test
from attnlab.instruments.block_figures import heat_figure
from attnlab.instruments.stiffness import StiffnessResult
from attnlab.lab.statistics import paired_difference, summarize
from attnlab.page.plot import write_svg
from attnlab.results.record import RunRecord, StudyRecord, read_record
from attnlab.subject.run import open_run, untrained_network

CONVENTIONS = ("state", "branch", "paper")
Cell = tuple[str, bool, str]
"""A row of the study, whether it is trained, and the convention."""
Measured = dict[Cell, dict[int, StiffnessResult]]


def proportion(found: StiffnessResult) -> float:
    """Figure 6 in one number: the median of p̂ over the degrees M that most inputs reach. It depends
    on which degrees are drawn; these are those of `regular_grid`."""
    degrees = zip(chain(*found.surface), chain(*found.proportion), strict=True)
    return median(share for inputs, share in degrees if inputs > 0.5)


def measure(run: RunRecord, limit: int) -> dict[tuple[bool, str], StiffnessResult]:
    """One run in all conventions, as it was trained and as it began, on its own test images."""
    subject = open_run(run.stored.directory)
    images = list(subject.inputs(limit))
    networks = {True: subject.network, False: untrained_network(run.stored.directory)}
    return {
        (trained, convention): attnlab.stiffness(
            network, images, convention=convention, progress=False
        )
        for trained, network in networks.items()
        for convention in CONVENTIONS
    }


def measure_all(record: StudyRecord, limit: int) -> Measured:
    """Every finished run of the study's first group."""
    found: Measured = {}
    group = record.table.groups[0]
    for row in group.rows:
        for run in record.of(group, row.label):
            for (trained, convention), result in measure(run, limit).items():
                of_row = found.setdefault((row.label, trained, convention), {})
                of_row[run.entry.seed] = result
    return found


def tns(found: Measured, cell: Cell) -> dict[int, float]:
    """By seed."""
    return {seed: result.tns for seed, result in found[cell].items()}


def total_table(found: Measured, rows: Sequence[str], trained: bool) -> None:
    """TNS of every row in every convention, with its difference to the first row."""
    print(f"\nTNS, {'trained' if trained else 'untrained'}: mean ± std, difference to {rows[0]}\n")
    print("| module | " + " | ".join(CONVENTIONS) + " |\n| --- |" + " --- |" * len(CONVENTIONS))
    for row in rows:
        cells = []
        for convention in CONVENTIONS:
            own = tns(found, (row, trained, convention))
            text = summarize(list(own.values())).text(3)
            if row != rows[0]:
                plain = tns(found, (rows[0], trained, convention))
                far = paired_difference(own, plain)
                if far.low is not None and far.high is not None:
                    text += f", {far.mean:+.3f} [{far.low:+.3f}, {far.high:+.3f}]"
            cells.append(text)
        print(f"| {row} | " + " | ".join(cells) + " |")


def step_table(found: Measured, rows: Sequence[str]) -> None:
    """What Figures 3 and 6 show, by convention `state`."""
    print("\nStiffest step and p̂, by convention state: mean over seeds\n")
    print("| module | stiffest of most inputs | median p̂ | the same, untrained | median p̂ |")
    print("| --- | --- | ---: | --- | ---: |")
    for row in rows:
        cells = []
        for trained in (True, False):
            results = found[row, trained, "state"].values()
            labels = sorted(each.stiffest.label for each in results if each.stiffest is not None)
            names = ", ".join(f"{each} × {labels.count(each)}" for each in dict.fromkeys(labels))
            shares = summarize([100 * proportion(each) for each in results])
            cells += [names, f"{shares.text(0)} %"]
        print(f"| {row} | " + " | ".join(cells) + " |")


def rank_lines(found: Measured, rows: Sequence[str], results: dict[str, float]) -> None:
    """Figure 7 and its control: does TNS order the rows as their results do?"""
    print("\nKendall τ of TNS with the result over the rows, p of all or 100,000 orders")
    for trained in (True, False):
        for convention in CONVENTIONS:
            means = [fmean(tns(found, (row, trained, convention)).values()) for row in rows]
            test = rank_test("TNS", means, [results[row] for row in rows])
            state = "trained" if trained else "untrained"
            print(f"  {state:9} {convention:7} {test.kendall:+.2f}, p = {test.kendall_p:.3f}")


def draw(found: Measured, rows: Sequence[str], path: Path) -> None:
    """Mean NSI of every step, trained and untrained, over seeds."""
    cells = [
        (f"{row}, {'trained' if trained else 'untrained'}", step.label, step.mean)
        for row in rows
        for trained in (True, False)
        for result in found[row, trained, "state"].values()
        for step in result.nsi
    ]
    keys = dict.fromkeys((row, block) for row, block, _ in cells)
    means = [(*key, fmean(value for *own, value in cells if tuple(own) == key)) for key in keys]
    write_svg(heat_figure(means, legend="NSI", title="mean NSI over seeds"), path)


def main() -> None:
    """Measure and print; with --figure also draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--study", default="stepnet-table1-small")
    parser.add_argument("--limit", type=int, default=359, help="test images")
    parser.add_argument("--figure", type=Path, help="an SVG of the mean NSI per step")
    asked = parser.parse_args()
    record = read_record(asked.out, asked.study)
    found = measure_all(record, asked.limit)
    group = record.table.groups[0]
    rows = list(dict.fromkeys(row for row, _, _ in found))
    for trained in (True, False):
        total_table(found, rows, trained)
    step_table(found, rows)
    results = {row.label: fmean(row.by_seed.values()) for row in group.rows if row.by_seed}
    rank_lines(found, rows, results)
    if asked.figure is not None:
        draw(found, rows, asked.figure)


if __name__ == "__main__":
    main()
