"""Take residual steps out of a trained network: which can go, in which order, and what it costs."""

from attnlab.shorten.curves import ShortenResult as ShortenResult
from attnlab.shorten.curves import removal_curves as removal_curves
from attnlab.shorten.order import Chosen as Chosen
from attnlab.shorten.order import removal_order as removal_order
from attnlab.shorten.rankings import RANKINGS as RANKINGS
from attnlab.shorten.rankings import Ranking as Ranking
from attnlab.shorten.receipt import RemovedStep as RemovedStep
from attnlab.shorten.receipt import ShortenReceipt as ShortenReceipt
from attnlab.shorten.shorten import shorten as shorten
from attnlab.shorten.stand_ins import take_out as take_out
from attnlab.shorten.trial import Trial as Trial
