"""A comparison as text."""

from __future__ import annotations

from attnlab.results.comparison import StoredComparison
from attnlab.results.table import Row

HEADS = ("", "runs", "", "best*", "Δ [Student-t]", "[anytime]", "p (Holm)", "verdict", "seeds**")


def cells(comparison: StoredComparison) -> tuple[list[str], list[list[str]]]:
    """Headings, and a row of text per row of the table."""
    table = comparison.table
    heads = list(HEADS)
    heads[0], heads[2] = comparison.by, table.metric.title
    return heads, [_row(comparison, row) for row in table.groups[0].rows]


def footnotes(comparison: StoredComparison) -> list[str]:
    """What must be known to read it."""
    table = comparison.table
    by = (
        "the anytime interval, which stays right when seeds are added after a look"
        if table.sequential
        else "the Student-t interval, right if the number of seeds was fixed before the first "
        "look; --looked if not"
    )
    reasons = dict.fromkeys(
        row.comparison.note for row in table.groups[0].rows if row.comparison is not None
    )
    return [
        *(f"left out: {file} {why}" for file, why in comparison.left_out),
        *table.notes,
        f"Δ is to {table.groups[0].backbone}, {table.level:.0%} intervals; verdicts are by {by}",
        *(f"no verdict: {why}" for why in reasons if why),
        "* the best value of each run, chosen by looking: not a result",
        "** paired seeds that show a difference as large as this one with a probability of 80 %",
    ]


def to_text(comparison: StoredComparison) -> str:
    """The table in Markdown with its notes."""
    heads, rows = cells(comparison)
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n\n".join([table, "\n".join(f"- {note}" for note in footnotes(comparison))])


def _row(comparison: StoredComparison, row: Row) -> list[str]:
    metric, found = comparison.table.metric, row.comparison
    values, best = row.values[metric.name], row.best
    cells = [row.label, str(len(row.seeds)), values.text(metric.digits)]
    cells.append("" if best is None else best.text(metric.digits))
    if found is None:
        return [*cells, *[""] * (len(HEADS) - len(cells))]
    difference = found.difference
    cells.append(f"{metric.signed(difference.mean)} {_interval(comparison, row, False)}")
    cells.append(_interval(comparison, row, True))
    cells.append("" if found.adjusted_p is None else f"{found.adjusted_p:.3f}")
    cells.append(found.verdict)
    if row.label not in comparison.seeds_needed:
        return [*cells, ""]
    needed = comparison.seeds_needed[row.label]
    return [*cells, "> 1000" if needed is None else str(needed)]


def _interval(comparison: StoredComparison, row: Row, sequential: bool) -> str:
    assert row.comparison is not None
    low, high, _ = row.comparison.difference.figures(sequential)
    if low is None or high is None:
        return "[–]"
    return comparison.table.metric.interval_text(low, high)
