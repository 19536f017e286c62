"""Fold constant gates, and branches that are one layer in disguise, back into the network."""

from attnlab.fold.checkpoint import Description as Description
from attnlab.fold.checkpoint import load as load
from attnlab.fold.checkpoint import save as save
from attnlab.fold.fold import fold as fold
from attnlab.fold.receipt import FoldReceipt as FoldReceipt
from attnlab.fold.receipt import SiteRow as SiteRow
