"""Numbers with their nouns."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: float, noun: str) -> str:
    """Write a number with its noun: `1 run`, `2 runs`."""
    return f"{number:g} {noun}{'' if number == 1 else 's'}"


def a(noun: str) -> str:
    """Write a noun with its article: `a window`, `an image`."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def listed(names: Sequence[object], most: int = 4) -> str:
    """`a, b, c, d and 2 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(map(str, names[:most]))}{more}"
