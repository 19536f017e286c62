"""Does the size at which a gate begins make a network worse? The questions of gate-starts-cifar10.

    attnlab study run all-gates-cifar10
    attnlab study run gate-starts-cifar10
    attnlab study submit all-gates-cifar10 --table gates.json --add
    attnlab study submit gate-starts-cifar10 --table starts.json --add
    python examples/starts_of_gates.py starts.json gates.json

The two tables are in docs/tables. Rows pair by seed; p is corrected by Holm over the rows of a
question that both tables have.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from attnlab.lab.statistics import judge_differences, paired_difference
from attnlab.lab.study import SharedTable
from attnlab.results.table import Comparison

BySeed = dict[int, float]
Pairs = dict[str, tuple[BySeed, BySeed]]
"""By the name of a row: its results, and those that are taken off."""

IDENTITY, FROZEN = ", identity start", ", frozen"


def questions(starts: SharedTable, gates: SharedTable) -> dict[str, dict[str, Comparison]]:
    """The verdicts of every question, in the words of the plan."""
    ours, usual = (
        {row.label: row.by_seed(table.metric) for row in table.rows} for table in (starts, gates)
    )
    plain = starts.plain.label
    if ours[plain] != usual.get(plain):
        raise SystemExit(
            "Expected the same plain network in both tables, to the bit, but it differs: they were "
            "not made with one version, one machine and one recipe. Run both studies anew."
        )
    begun = {label: ours[label + IDENTITY] for label in usual if label + IDENTITY in ours}
    frozen = {label: ours[label + FROZEN] for label in usual if label + FROZEN in ours}
    constants = {label: ours[label] for label in ours if label.startswith("constant")}
    pairs: dict[str, Pairs] = {
        "a constant − plain": {row: (own, ours[plain]) for row, own in constants.items()},
        "begun at 1 − begun as in the paper": {row: (begun[row], usual[row]) for row in begun},
        "begun at 1 − plain": {row: (begun[row], ours[plain]) for row in begun},
        "never trained − plain": {row: (frozen[row], ours[plain]) for row in frozen},
        "trained − never trained": {row: (usual[row], frozen[row]) for row in frozen},
    }
    return {
        asked: judge_differences({row: paired_difference(*pair) for row, pair in rows.items()})
        for asked, rows in pairs.items()
        if rows
    }


def line(label: str, found: Comparison) -> str:
    """One row of a question in Markdown."""
    each = found.difference
    if each.low is None or each.high is None or found.adjusted_p is None:
        return f"| {label} | {each.mean:+.2f} [–] | | {each.note} |"
    interval = f"[{each.low:+.2f}, {each.high:+.2f}]"
    return f"| {label} | {each.mean:+.2f} {interval} | {found.adjusted_p:.3f} | {found.verdict} |"


def main() -> None:
    """Read the two tables and print the answers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("starts", type=Path)
    parser.add_argument("gates", type=Path)
    asked = parser.parse_args()
    found = questions(SharedTable.load(asked.starts), SharedTable.load(asked.gates))
    for question, rows in found.items():
        print(f"| {question} | points [95% interval] | p (Holm) | verdict |")
        print("| --- | ---: | ---: | ---: |")
        print("\n".join(line(label, each) for label, each in rows.items()), end="\n\n")


if __name__ == "__main__":
    main()
