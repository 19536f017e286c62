"""What does a gate add by learning? A study minus its control, whose gates never train.

    attnlab study run all-gates
    attnlab study run all-gates-frozen
    python examples/learned_or_frozen.py                  after both, from the same folder
    python examples/learned_or_frozen.py --out runs --study all-gates --control all-gates-frozen

Rows pair by their label and their seed. p is corrected by Holm over the rows of the control. The
last line is the mean over these rows: one difference for every seed, so it has an interval too.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean

from attnlab.lab.statistics import judge_differences, paired_difference
from attnlab.results.study import read_table
from attnlab.results.table import Comparison, Group

BySeed = dict[int, float]


def learned_minus_frozen(learned: Group, frozen: Group) -> dict[str, Comparison]:
    """A verdict for every row that the control has, and one for the mean over them."""
    ours, control = ({row.label: row.by_seed for row in each.rows} for each in (learned, frozen))
    plain = frozen.plain
    if plain is None or ours.get(plain.label) != control[plain.label]:
        raise SystemExit(
            "Expected the same plain network in both studies, to the bit, but it differs: they "
            "were not made with one version, one machine and one recipe. Run both studies anew."
        )
    shared = [label for label in control if label != plain.label]
    lost = [label for label in shared if label not in ours]
    if lost:
        raise SystemExit(f"Expected every row of the control in the study too, but not: {lost}.")
    found = judge_differences({row: paired_difference(ours[row], control[row]) for row in shared})
    mean = paired_difference(mean_of_rows(ours, shared), mean_of_rows(control, shared))
    return found | judge_differences({"mean of all": mean})


def mean_of_rows(results: dict[str, BySeed], rows: list[str]) -> BySeed:
    """The mean over rows, for every seed that all of them have."""
    seeds = set.intersection(*(set(results[row]) for row in rows))
    return {seed: fmean(results[row][seed] for row in rows) for seed in sorted(seeds)}


def line(label: str, found: Comparison) -> str:
    """One row of the table in Markdown."""
    difference = found.difference
    if difference.low is None or difference.high is None or found.adjusted_p is None:
        return f"| {label} | {difference.mean:+.2f} [–] | | {difference.note} |"
    interval = f"[{difference.low:+.2f}, {difference.high:+.2f}]"
    judged = f"{found.adjusted_p:.3f} | {found.verdict}"
    return f"| {label} | {difference.mean:+.2f} {interval} | {judged} |"


def main() -> None:
    """Read the two tables and print their difference."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--study", default="all-gates")
    parser.add_argument("--control", default="all-gates-frozen")
    asked = parser.parse_args()
    tables = [read_table(asked.out / "studies" / name) for name in (asked.study, asked.control)]
    (learned,), (frozen,) = (table.groups for table in tables)
    print("| gate | learned − frozen [95% interval] | p (Holm) | verdict |")
    print("| --- | ---: | ---: | ---: |")
    for label, found in learned_minus_frozen(learned, frozen).items():
        print(line(label, found))


if __name__ == "__main__":
    main()
