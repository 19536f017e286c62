"""Is this the output that the page shows? Equal but for what time and the machine decide."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise

ANY_LINES = "..."
"""Alone on a line of a page it stands for any lines."""

_NUMBER = r"\d[\d,]*(?:\.\d+)?"
_UNIT = r"(?:ns|µs|us|ms|s|secs?|min|h|seconds?|minutes?|hours?)"
_MASKS = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"(?<![\w.<])~?/[\w.~+-]+(?:/[\w.~+-]+)*/?"), "PATH"),
    (re.compile(r"(?<=\.py):\d+|(?<=\.md):\d+"), ":LINE"),
    (re.compile(r"\b\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?\b"), "DATE"),
    (re.compile(r"\b\d+:\d\d(?::\d\d)?\b"), "TIME"),
    (re.compile(r"\bv?\d+\.\d+\.\d+[\w.+-]*"), "VERSION"),
    (re.compile(r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}\b"), "HASH"),
    (re.compile(r"\b\d{12}\b"), "HASH"),
    (re.compile(rf"{_NUMBER} ?(?:images/s|MB/s|GB/s|GFLOP/s)"), "SPEED"),
    (
        re.compile(rf"(?:\b{_NUMBER} → )?\b{_NUMBER} ?{_UNIT}\b"),
        "TIME",
    ),
    (re.compile(rf"\b{_NUMBER} ?(?:[KMG]i?B)\b"), "SIZE"),
    (re.compile(r"\b\d+\.\d+×(?: \[\d+\.\d+, \d+\.\d+\])?"), "RATIO"),
    (re.compile(r"\b\d+ interleaved rounds"), "N interleaved rounds"),
    (
        re.compile(r"\b(\d+) (threads?|cores?|slots?|CPUs?)\b|\b(threads?|cores?|slots?) (\d+)\b"),
        "THREADS",
    ),
    (re.compile(r"(?:[─━═—-]{3,}|[─━═]+)"), "---"),
)
_SPLIT = re.compile(r"((?<![\w.])[+-]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?)")


def mask(line: str) -> str:
    """The line without times, speeds, versions, paths, hashes, dates and the width of columns."""
    for pattern, word in _MASKS:
        line = pattern.sub(word, line)
    return " ".join(line.split())


_TRAINS = re.compile(r"\battnlab (?:train|style train|detect train|study run)\b")
USUAL, TRAINED = 0.02, 0.2
"""How far decimals may be apart, as a share: computed once, and after a training.

Training multiplies rounding: after 16 steps of the smallest network for style transfer its losses
were 3 % apart on two processors, both with AVX-512.
"""


def trains(command: str) -> bool:
    """Whether a command trains, so that what is printed from there on depends on the processor."""
    return _TRAINS.search(command) is not None


def same_line(shown: str, actual: str, tolerance: float = USUAL) -> bool:
    """Equal words and integers; decimals to 2 %, or to one unit of the last of two or more digits.

    One digit is left to the 2 %: `1.0` and `1.1` are also the names of two blocks.

    Values below 1e-5 are rounding errors here, and all of them are alike.
    """
    expected, got = _SPLIT.split(mask(shown)), _SPLIT.split(mask(actual))
    return len(expected) == len(got) and all(
        _same_number(one, other, tolerance) if index % 2 else one == other
        for index, (one, other) in enumerate(zip(expected, got, strict=True))
    )


def _same_number(shown: str, actual: str, tolerance: float) -> bool:
    if shown == actual:
        return True
    one, other = (float(text.replace(",", "")) for text in (shown, actual))
    decimals = shown.partition("e")[0].partition(".")[2]
    if not decimals and "e" not in shown:
        return abs(one) < 1e-5 and abs(other) < 1e-5
    if max(abs(one), abs(other)) < 1e-5:
        return True
    unit = 0.0 if "e" in shown or len(decimals) < 2 else 10.0 ** -len(decimals)
    return math.isclose(one, other, rel_tol=tolerance, abs_tol=1.01 * unit)


def same_output(shown: Sequence[str], actual: Sequence[str], tolerance: float = USUAL) -> bool:
    """Whether the lines on the page stand for the lines of the output; blank ends do not count."""
    shown, actual = _stripped(shown), _stripped(actual)
    gaps = [-1, *(i for i, line in enumerate(shown) if line.strip() == ANY_LINES), len(shown)]
    chunks = [shown[start + 1 : end] for start, end in pairwise(gaps)]
    if len(chunks) == 1:
        return _matches_at(shown, actual, 0, tolerance) and len(shown) == len(actual)
    first, *middle, last = chunks
    if not _matches_at(first, actual, 0, tolerance):
        return False
    position = len(first)
    for chunk in middle:
        while not _matches_at(chunk, actual, position, tolerance):
            position += 1
            if position > len(actual):
                return False
        position += len(chunk)
    tail = len(actual) - len(last)
    return tail >= position and _matches_at(last, actual, tail, tolerance)


def _matches_at(
    chunk: Sequence[str], actual: Sequence[str], position: int, tolerance: float
) -> bool:
    part = actual[position : position + len(chunk)]
    return len(part) == len(chunk) and all(
        same_line(one, other, tolerance) for one, other in zip(chunk, part, strict=True)
    )


def _stripped(lines: Sequence[str]) -> list[str]:
    kept = [line.rstrip() for line in lines]
    while kept and not kept[-1]:
        kept.pop()
    while kept and not kept[0]:
        kept.pop(0)
    return kept
