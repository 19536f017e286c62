"""What attention costs at inference: ASR's Table 1, on this machine."""

from typing import TYPE_CHECKING

from attnlab._folders import handed_on

if TYPE_CHECKING:
    from attnlab.instruments.speed.measure import speed_table as speed_table
    from attnlab.instruments.speed.result import SpeedRow as SpeedRow
    from attnlab.instruments.speed.result import SpeedTable as SpeedTable
    from attnlab.instruments.speed.result import TimedImages as TimedImages

__getattr__, __dir__ = handed_on(
    __name__, measure=("speed_table",), result=("SpeedRow", "SpeedTable", "TimedImages")
)
