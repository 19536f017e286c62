"""Trainings, studies of many trainings, and what their numbers say."""

from typing import TYPE_CHECKING

from attnlab._folders import reached

# With a kind of result its format becomes known: whoever reads runs from here on sees a measurement
# that is damaged.
from attnlab.instruments.classes.result import ClassesResult as ClassesResult
from attnlab.instruments.corruptions.result import CorruptionsResult as CorruptionsResult
from attnlab.instruments.pictures.result import PicturesResult as PicturesResult
from attnlab.instruments.speed.result import SpeedTable as SpeedTable
from attnlab.instruments.stiffness.result import StiffnessResult as StiffnessResult
from attnlab.instruments.stripe.result import StripeResult as StripeResult
from attnlab.instruments.trajectory.result import TrajectoryResult as TrajectoryResult
from attnlab.results.details import DetailsResult as DetailsResult

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
