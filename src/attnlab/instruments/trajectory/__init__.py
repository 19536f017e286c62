"""Where a network's states go, step by step, in a form that networks can be compared by."""

from typing import TYPE_CHECKING

from attnlab._folders import handed_on

if TYPE_CHECKING:
    from attnlab.instruments.trajectory.measure import trajectory as trajectory
    from attnlab.instruments.trajectory.result import TrajectoryResult as TrajectoryResult
    from attnlab.instruments.trajectory.result import cka_distances as cka_distances
    from attnlab.instruments.trajectory.result import nsi_distances as nsi_distances

__getattr__, __dir__ = handed_on(
    __name__,
    measure=("trajectory",),
    result=("TrajectoryResult", "cka_distances", "nsi_distances"),
)
