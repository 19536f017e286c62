"""Fold constant gates, and branches that are one layer in disguise, back into the network."""

from attnlab.fold._cost import CostName as CostName
from attnlab.fold._places import has_constant_gates as has_constant_gates
from attnlab.fold.budget import cost_curve as cost_curve
from attnlab.fold.curve import Budget as Budget
from attnlab.fold.curve import Curve as Curve
from attnlab.fold.curve import CurvePoint as CurvePoint
from attnlab.fold.fold import fold as fold
from attnlab.fold.receipt import FoldReceipt as FoldReceipt
from attnlab.fold.receipt import SiteRow as SiteRow
from attnlab.fold.structure import restructure as restructure
