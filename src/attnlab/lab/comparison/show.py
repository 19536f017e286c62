"""A comparison as text, and what must be known to read it."""

from __future__ import annotations

from attnlab.lab.comparison.columns import text_table
from attnlab.lab.comparison.result import ComparisonResult


def comparison_footnotes(comparison: ComparisonResult) -> list[str]:
    """Return what must be known to read it."""
    table = comparison.judged
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
        *comparison.notes,
        f"Δ is to {table.groups[0].backbone}, {table.level:.0%} intervals; verdicts are by {by}",
        *(f"no verdict: {why}" for why in reasons if why),
        "* the best value of each run, chosen by looking: not a result",
        "** paired seeds that show a difference as large as this one with a probability of 80 %",
    ]


def to_text(comparison: ComparisonResult) -> str:
    """The table in Markdown with its notes."""
    notes = "\n".join(f"- {note}" for note in comparison_footnotes(comparison))
    return f"{text_table(comparison).to_markdown()}\n{notes}"
