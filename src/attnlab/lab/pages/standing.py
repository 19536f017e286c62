"""Where each module stands against the plain backbone, read off the study's table."""

from __future__ import annotations

from math import isfinite

from attnlab.lab.pages.figures import ForestRow, Standing
from attnlab.results.table import Comparison, Group


def standing_of(comparison: Comparison) -> Standing:
    """In the words of the page. "gain" and "loss" are the study's verdicts, after Holm and in the
    metric's direction."""
    if comparison.low is None or comparison.high is None:
        return "no interval"
    if comparison.verdict == "cannot tell":
        return "cannot tell"
    if comparison.verdict in ("better", "worse"):
        return "gain" if comparison.verdict == "better" else "loss"
    if comparison.low <= 0 <= comparison.high:
        return "within noise"
    return "before correction only"


def forest_rows(group: Group) -> list[ForestRow]:
    """The modules of a group that can be compared, in the study's order. One whose difference is
    not a number has no place in a picture; its reason is among the alerts."""
    plain = group.plain
    return [
        ForestRow(
            row.label,
            compared.difference.mean,
            compared.low,
            compared.high,
            standing_of(compared),
            {seed: row.by_seed[seed] - plain.by_seed[seed] for seed in compared.difference.seeds},
        )
        for row in group.rows
        if plain is not None
        and (compared := row.comparison) is not None
        and isfinite(compared.difference.mean)
    ]
