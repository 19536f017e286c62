"""Evenly spread numbers: the first, the last, and equal distances between."""

from __future__ import annotations

import pytest

from attnlab._spread import evenly_spread


@pytest.mark.parametrize(
    ("count", "chosen", "expected"),
    [
        (10, 4, [0, 3, 6, 9]),
        (10, 3, [0, 4, 9]),  # 4.5 is rounded to the even number
        (5, 1, [0]),
        (5, 0, []),
        (3, 3, [0, 1, 2]),
        (3, 8, [0, 1, 2]),
        (3, None, [0, 1, 2]),
        (0, None, []),
    ],
)
def test_by_hand(count: int, chosen: int | None, expected: list[int]) -> None:
    assert evenly_spread(count, chosen) == expected


def test_no_number_twice() -> None:
    for count in range(1, 200):
        for chosen in range(1, count + 1):
            found = evenly_spread(count, chosen)
            assert len(set(found)) == chosen
            assert chosen == 1 or (found[0], found[-1]) == (0, count - 1)
