"""Numbers with their nouns."""

from __future__ import annotations


def counted(number: float, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number:g} {noun}{'' if number == 1 else 's'}"
