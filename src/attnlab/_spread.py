"""Some of many, evenly spread: of images, because sets are often sorted by class; of channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def evenly_spread(count: int, chosen: int | None) -> Tensor:
    """The numbers of `chosen` out of `count` things, from the first to the last, equally far apart;
    all of them if `chosen` is None or larger than `count`.

    `evenly_spread(10, 4)` is `tensor([0, 3, 6, 9])`; of one, it is the first.
    """
    import torch  # here, because a page needs no torch until it leaves things out

    if chosen is None or chosen >= count:
        return torch.arange(count)
    return torch.linspace(0, count - 1, chosen).round().long()
