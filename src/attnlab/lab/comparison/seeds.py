"""Which row of the table a log belongs to, and which seed it had."""

from __future__ import annotations

import re
from dataclasses import dataclass

from attnlab._errors import InputError, nearest
from attnlab.lab.comparison.log import Log

_IN_A_NAME = re.compile(
    r"(?:^|(?<=[-_. /=]))(?:seed|run|rep|trial|s)[-_=]?(\d+)(?![0-9a-zA-Z])", re.IGNORECASE
)
"""`seed3`, `seed=3`, `s3`, `run-3`. A bare number is none: `vit_b_16` has no seed."""


@dataclass(frozen=True)
class PlacedLog:
    """A log with its row and its seed."""

    log: Log
    row: str
    seed: int | None


def place_log(log: Log, by: str, seed_from: str | None, pattern: str | None = None) -> PlacedLog:
    """The row and the seed of a log.

    Args:
        log: the log.
        by: the field that names the row. A seed that is part of its text is taken out.
        seed_from: the field that holds the seed, or has it in its text; None means "seed" where
            that is known, else "name", and no seed where the name has none.
        pattern: a regular expression whose group is the seed, in place of words like `seed3`.
    """
    known = log.known
    if by not in known:
        raise InputError(
            f"{str(log.file)!r} does not say {by!r}.{nearest(by, known)} It says: "
            f"{', '.join(known)}. Choose one of these with --by."
        )
    expression = _IN_A_NAME if pattern is None else _compiled(pattern)
    source = seed_from or ("seed" if "seed" in known else "name")
    if source not in known:
        raise InputError(
            f"{str(log.file)!r} does not say {source!r}.{nearest(source, known)} It says: "
            f"{', '.join(known)}. Choose one of these with --seed-from."
        )
    seed = _seed(known[source], expression)
    if seed is None and seed_from is not None:
        raise InputError(
            f"There is no seed in {source} {known[source]!r} of {str(log.file)!r}. Expected a "
            f"number, or a text with one after 'seed', 'run', 'rep', 'trial' or 's', such as "
            f"'cbam-seed3'. --seed-pattern gives another form: '-(\\d+)$' for 'cbam-3'."
        )
    row = known[by]
    if seed is not None and _seed(row, expression) == seed:
        row = _without(row, expression)
    return PlacedLog(log, row, seed)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise InputError(
            f"--seed-pattern {pattern!r} is not a regular expression: {error}."
        ) from None
    if expression.groups != 1:
        raise InputError(
            f"--seed-pattern {pattern!r} has {expression.groups} groups, expected one, which is "
            f"the seed: '-(\\d+)$'."
        )
    return expression


def _seed(text: str, expression: re.Pattern[str]) -> int | None:
    if re.fullmatch(r"\d+(\.0+)?", text):  # a table of numbers may have written 3.0
        return int(float(text))
    found = expression.search(text)
    if found is None or found.group(1) is None or not found.group(1).isdigit():
        return None
    return int(found.group(1))


def _without(text: str, expression: re.Pattern[str]) -> str:
    """`cbam-seed3` → `cbam`, `seed3_cbam` → `cbam`."""
    left = expression.sub("", text)
    return re.sub(r"[-_. /=]{2,}", "-", left).strip("-_. /=") or text
