"""What several gates share."""

from __future__ import annotations

from attnlab._errors import OptionError


def hidden_width(channels: int, reduction: int) -> int:
    """round(channels / reduction), at least 1: a gate without hidden units would be a constant.

    Python's round is banker's rounding, as in the papers' code: 232 / 16 = 14.5 gives 14.
    """
    if reduction < 1:
        raise OptionError(f"Expected reduction to be at least 1 but got {reduction}.")
    return max(1, round(channels / reduction))
