"""Where the gates of a run went, when that was chosen by a measurement; placement.json."""

from __future__ import annotations

from attnlab._strict import Strict

FILE = "placement.json"


class PlacementRecord(Strict):
    """What a word such as `stiffest:1` came to mean for one run, and what it was computed from."""

    word: str
    """As the study has it."""
    where: str
    """The blocks that it chose, for `insert`."""
    source: str
    """The id of the run that was measured."""
    source_is: str
    """That run in words."""
    images: int
    """How many training images it was measured on."""
    quantity: str
    """What the scores are."""
    scores: dict[str, float | None]
    """By block; None where it has none."""
    reasons: tuple[str, ...]
    """One line per block that was chosen, and one per margin."""
