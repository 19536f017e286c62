"""Take residual steps out of a network: the surgery, its check and its receipt."""

from attnlab.surgery.shortening.receipt import RemovedStep as RemovedStep
from attnlab.surgery.shortening.receipt import ShortenReceipt as ShortenReceipt
from attnlab.surgery.shortening.stand_ins import take_out as take_out
