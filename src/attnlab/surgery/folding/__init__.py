"""Fold constant gates, and branches that are one layer in disguise, back into the network."""

from typing import TYPE_CHECKING

from attnlab._folders import handed_on

if TYPE_CHECKING:
    from attnlab.surgery.folding._cost import CostName as CostName
    from attnlab.surgery.folding._places import has_constant_gates as has_constant_gates
    from attnlab.surgery.folding.budget import cost_curve as cost_curve
    from attnlab.surgery.folding.curve import Budget as Budget
    from attnlab.surgery.folding.curve import Curve as Curve
    from attnlab.surgery.folding.curve import CurvePoint as CurvePoint
    from attnlab.surgery.folding.fold import fold_budget as fold_budget
    from attnlab.surgery.folding.fold import fold_constants as fold_constants
    from attnlab.surgery.folding.fuse_receipt import FuseReceipt as FuseReceipt
    from attnlab.surgery.folding.fuse_receipt import LayerLeft as LayerLeft
    from attnlab.surgery.folding.fuse_receipt import MergedLayer as MergedLayer
    from attnlab.surgery.folding.receipt import FoldReceipt as FoldReceipt
    from attnlab.surgery.folding.receipt import SiteRow as SiteRow
    from attnlab.surgery.folding.structure import restructure as restructure

# Found when they are first used: the page of a study reads receipts and needs no network.
__getattr__, __dir__ = handed_on(
    __name__,
    _cost=("CostName",),
    _places=("has_constant_gates",),
    budget=("cost_curve",),
    curve=("Budget", "Curve", "CurvePoint"),
    fold=("fold_budget", "fold_constants"),
    fuse_receipt=("FuseReceipt", "LayerLeft", "MergedLayer"),
    receipt=("FoldReceipt", "SiteRow"),
    structure=("restructure",),
)
