"""Trainings, studies of many trainings, and what their numbers say."""

from typing import TYPE_CHECKING

from attnlab._folders import reached

if TYPE_CHECKING:
    from attnlab.lab import comparison as comparison
    from attnlab.lab import measures as measures
    from attnlab.lab import pages as pages
    from attnlab.lab import recipes as recipes
    from attnlab.lab import statistics as statistics
    from attnlab.lab import study as study
    from attnlab.lab import tracking as tracking
    from attnlab.lab import training as training

__getattr__, __dir__ = reached(
    __name__,
    "comparison",
    "measures",
    "pages",
    "recipes",
    "statistics",
    "study",
    "tracking",
    "training",
)
