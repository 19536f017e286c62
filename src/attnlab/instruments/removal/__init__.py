"""Which residual steps of a trained network can go, in which order, and what it costs.

`shorten` is here and not in the room of surgery, because it ranks steps by their stiffness.
"""

from attnlab.instruments.removal.curves import ShortenResult as ShortenResult
from attnlab.instruments.removal.curves import removal_curves as removal_curves
from attnlab.instruments.removal.order import Chosen as Chosen
from attnlab.instruments.removal.order import removal_order as removal_order
from attnlab.instruments.removal.rankings import RANKINGS as RANKINGS
from attnlab.instruments.removal.rankings import Ranking as Ranking
from attnlab.instruments.removal.trial import Trial as Trial
