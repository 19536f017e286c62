"""Which residual steps of a trained network can go, in which order, and what it costs.

`shorten` is here and not in the room of surgery, because it ranks steps by their stiffness.
"""

from typing import TYPE_CHECKING

from attnlab._folders import handed_on

if TYPE_CHECKING:
    from attnlab.instruments.removal.curves import removal_curves as removal_curves
    from attnlab.instruments.removal.order import Chosen as Chosen
    from attnlab.instruments.removal.order import removal_order as removal_order
    from attnlab.instruments.removal.rankings import RANKINGS as RANKINGS
    from attnlab.instruments.removal.rankings import Ranking as Ranking
    from attnlab.instruments.removal.result import ShortenResult as ShortenResult
    from attnlab.instruments.removal.trial import RemovalTrial as RemovalTrial

__getattr__, __dir__ = handed_on(
    __name__,
    curves=("removal_curves",),
    order=(
        "Chosen",
        "removal_order",
    ),
    rankings=(
        "RANKINGS",
        "Ranking",
    ),
    result=("ShortenResult",),
    trial=("RemovalTrial",),
)
