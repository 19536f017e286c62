"""Where each module stands against the plain backbone, read off the study's table."""

from __future__ import annotations

from math import isfinite

from attnlab.lab.pages.figures import ForestRow
from attnlab.results.table import Group


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
            compared.standing,
            {seed: row.by_seed[seed] - plain.by_seed[seed] for seed in compared.difference.seeds},
        )
        for row in group.rows
        if plain is not None
        and (compared := row.comparison) is not None
        and isfinite(compared.difference.mean)
    ]
