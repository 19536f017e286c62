"""Some of many, evenly spread: of images, because sets are often sorted by class; of channels."""

from __future__ import annotations


def evenly_spread(count: int, chosen: int | None) -> list[int]:
    """The numbers of `chosen` out of `count` things, from the first to the last, equally far apart;
    all of them if `chosen` is None or larger than `count`.

    `evenly_spread(10, 4)` is `[0, 3, 6, 9]`; of one, it is the first.
    """
    if chosen is None or chosen >= count:
        return list(range(count))
    gaps = max(1, chosen - 1)
    return [round(place * (count - 1) / gaps) for place in range(chosen)]
