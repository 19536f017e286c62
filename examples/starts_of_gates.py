"""Why are gates worse than none in a RegNetX-200MF? The questions of gate-starts-cifar10, which is
about the size at which a gate begins, and of the other controls of all-gates-cifar10.

    attnlab study run all-gates-cifar10
    attnlab study run gate-starts-cifar10
    attnlab study submit all-gates-cifar10 --table gates.json --add
    attnlab study submit gate-starts-cifar10 --table starts.json --add
    python examples/starts_of_gates.py starts.json gates.json

Likewise for the tables of all-gates-cifar10-frozen and all-gates-cifar10-wider in the place of the
first. What gate-starts-branches asks takes three: with `--branches branches.json`; and the mean
over all gates takes the rows that all-gates-cifar10-frozen has not: with `--shared starts.json`.

The tables are in docs/tables. Rows pair by seed; p is corrected by Holm over the rows of a question
that both tables have.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean

from attnlab.lab.statistics import judge_differences, paired_difference
from attnlab.lab.study import SharedTable
from attnlab.lab.study.shared import SharedRow
from attnlab.results.table import Comparison

BySeed = dict[int, float]
Rows = dict[str, BySeed]
Pairs = dict[str, tuple[BySeed, BySeed]]
"""By the name of a row: its results, and those that are taken off."""

IDENTITY, FROZEN, WIDER = ", identity start", ", frozen", "as many as "
BEGIN_AS = {"srm": "constant 0.5", "gc": "constant 0.5", "gct": "plain"}
"""Gates whose network, never trained, is that of another row of gate-starts-cifar10."""
ALIKE = 0.01
"""A wider network has the parameters of a gate if it has them to this share."""


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
    wider = {label: ours[label] for label in ours if label.startswith(WIDER)}
    pairs: dict[str, Pairs] = {
        "a constant − plain": {row: (own, ours[plain]) for row, own in constants.items()},
        "begun at 1 − begun as in the paper": {row: (begun[row], usual[row]) for row in begun},
        "begun at 1 − plain": {row: (begun[row], ours[plain]) for row in begun},
        "never trained − plain": {row: (frozen[row], ours[plain]) for row in frozen},
        "trained − never trained": {row: (usual[row], frozen[row]) for row in frozen},
        "as many parameters, no gate − plain": {row: (wider[row], ours[plain]) for row in wider},
        "the gate − as many parameters": {
            gate: (usual[gate], wider[row])
            for row in wider
            for gate in usual
            if gate != plain and as_large(gates.row(gate), starts.row(row))
        },
    }
    return answers(pairs)


def answers(pairs: dict[str, Pairs]) -> dict[str, dict[str, Comparison]]:
    """A verdict for every row of every question that has any."""
    return {
        asked: judge_differences({row: paired_difference(*pair) for row, pair in rows.items()})
        for asked, rows in pairs.items()
        if rows
    }


def as_large(gated: SharedRow, wider: SharedRow) -> bool:
    """Whether a wider network has the parameters of one with gates."""
    wanted, size = (row.runs[0].parameters for row in (gated, wider))
    return abs(size - wanted) <= ALIKE * wanted


def where_branches_begin_at_1(
    branches: SharedTable, starts: SharedTable, gates: SharedTable
) -> dict[str, dict[str, Comparison]]:
    """Is a row worse there too, and is its loss smaller than where branches begin at 0?"""
    own, at_0 = minus_plain(branches), minus_plain(gates) | minus_plain(starts)
    none = dict.fromkeys(branches.seeds, 0.0)
    return answers(
        {
            "branches begin at 1: row − plain": {row: (each, none) for row, each in own.items()},
            "this − the same where they begin at 0": {
                row: (own[row], at_0[row]) for row in own if row in at_0
            },
        }
    )


def mean_by_learning(
    frozen: SharedTable, starts: SharedTable, gates: SharedTable
) -> dict[str, Comparison]:
    """The mean over gates of trained − never trained, one difference for each seed."""
    rows = {row.label: row.by_seed(starts.metric) for row in (*starts.rows, *frozen.rows)}
    usual = {row.label: row.by_seed(gates.metric) for row in gates.rows}
    pairs = [(usual[gate], rows[row]) for gate, row in BEGIN_AS.items()]
    pairs += [(usual[gate], rows[gate + FROZEN]) for gate in usual if gate + FROZEN in rows]
    means = (
        {seed: fmean(pair[side][seed] for pair in pairs) for seed in gates.seeds} for side in (0, 1)
    )
    return judge_differences({f"mean of {len(pairs)} gates": paired_difference(*means)})


def minus_plain(table: SharedTable) -> Rows:
    """By row and seed, the result minus that of the plain network of the same table."""
    plain = table.plain.by_seed(table.metric)
    return {
        row.label: {seed: each - plain[seed] for seed, each in row.by_seed(table.metric).items()}
        for row in table.rows
        if not row.plain
    }


def line(label: str, found: Comparison) -> str:
    """One row of a question in Markdown."""
    each = found.difference
    if each.low is None or each.high is None or found.adjusted_p is None:
        return f"| {label} | {each.mean:+.2f} [–] | | {each.note} |"
    interval = f"[{each.low:+.2f}, {each.high:+.2f}]"
    shown = f"{found.adjusted_p:.3f}" if found.adjusted_p >= 0.0005 else "< 0.001"
    return f"| {label} | {each.mean:+.2f} {interval} | {shown} | {found.verdict} |"


def main() -> None:
    """Read the two tables and print the answers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("starts", type=Path)
    parser.add_argument("gates", type=Path)
    parser.add_argument("--branches", type=Path)
    parser.add_argument("--shared", type=Path)
    asked = parser.parse_args()
    starts, gates = SharedTable.load(asked.starts), SharedTable.load(asked.gates)
    found = questions(starts, gates)
    if asked.branches is not None:
        found = where_branches_begin_at_1(SharedTable.load(asked.branches), starts, gates)
    if asked.shared is not None:
        shared = SharedTable.load(asked.shared)
        found["trained − never trained, all"] = mean_by_learning(starts, shared, gates)
    for question, rows in found.items():
        print(f"| {question} | points [95% interval] | p (Holm) | verdict |")
        print("| --- | ---: | ---: | ---: |")
        print("\n".join(line(label, each) for label, each in rows.items()), end="\n\n")


if __name__ == "__main__":
    main()
