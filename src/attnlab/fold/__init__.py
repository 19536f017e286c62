"""Fold constant gates, and branches that are one layer in disguise, back into the network."""

from attnlab.fold.fold import fold as fold
from attnlab.fold.receipt import FoldReceipt as FoldReceipt
from attnlab.fold.receipt import SiteRow as SiteRow
from attnlab.fold.structure import restructure as restructure
