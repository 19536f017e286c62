"""Fold constant gates, and branches that are one layer in disguise, back into the network."""

from attnlab.fold._places import has_constant_gates as has_constant_gates
from attnlab.fold.fold import fold as fold
from attnlab.fold.receipt import FoldReceipt as FoldReceipt
from attnlab.fold.receipt import SiteRow as SiteRow
from attnlab.fold.structure import restructure as restructure
