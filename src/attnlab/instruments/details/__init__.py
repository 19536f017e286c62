"""What a task shows of a finished network."""

from typing import TYPE_CHECKING

from attnlab._folders import handed_on

if TYPE_CHECKING:
    from attnlab.instruments.details.measure import measure_details as measure_details

__getattr__, __dir__ = handed_on(__name__, measure=("measure_details",))
