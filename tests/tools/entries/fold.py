"""Gates folded into the layers before them, exactly or as constants."""

from __future__ import annotations

from tests.tools.entries.shared import (
    images,
    labelled,
    network,
    output,
    picked,
    receipt,
    weights,
)
from torch import nn

import attnlab
from attnlab.surgery.folding import FoldReceipt

ROWS = "site into smallest largest error spread predicted_change kept undone_by"
CHOSEN = "predicted measured accuracy_before accuracy_after accuracy_error"
POINT = "site predicted bound measured accuracy accuracy_error"


def _gated() -> nn.Module:
    """With four hidden units and more: of a single one, ReLU makes half of the gates constant."""
    return network(gate="se", reduction=4)


def _folded(found: object, size: int = 16, **options: object) -> dict[str, object]:
    return _shown(*attnlab.fold(found, example=images(1, size), **options), size)


def _constant(found: object, data: object, size: int = 16, **options: object) -> dict[str, object]:
    return _shown(*attnlab.fold_constants(found, data, example=images(1, size), **options), size)


def _budget(found: object, data: object, budget: object, **options: object) -> dict[str, object]:
    return _shown(*attnlab.fold_budget(found, data, budget, example=images(1), **options))


def _shown(plain: nn.Module, made: FoldReceipt, size: int = 16) -> dict[str, object]:
    rows = []
    for row in made.rows:
        each = picked(row, ROWS)
        # Of an exact fold; what it is of gates that are made constant is in the receipt.
        each["error"] = None if each["error"] is None else each["error"] < 1e-5
        rows.append(each)
    return {
        "receipt": receipt(made, "removed affine fused"),
        "exact in float64": made.float64_change is not None and made.float64_change < 1e-10,
        "rows": rows,
        "chosen": picked(made, CHOSEN),
        "weights": weights(plain),
        "output": output(plain, images(2, size)),
    }


def exact() -> object:
    return {gate: _folded(network(gate=gate)) for gate in ("asr:se", "asr:eca", "asr:se*2")}


def exact_of_others() -> object:
    return {
        "torchvision:resnet18": _folded(network("torchvision:resnet18", "asr:se", size=32), 32),
        "timm:test_resnet": _folded(network("timm:test_resnet", "asr:srm", size=160), 160),
    }


def partial() -> object:
    return _folded(network(gate="asr:se+se"), partial=True)


def fused() -> object:
    return _folded(network(gate="asr:se"), fuse=True)


def fused_without_gates() -> object:
    return {
        "resnet20": _folded(network(), fuse=True),
        "timm:repvgg_a0": _folded(network("timm:repvgg_a0"), 32, fuse=True),
    }


def constants() -> object:
    data = labelled()
    return {
        "inserted": _constant(_gated(), data, tolerance=10.0),
        "some": _constant(_gated(), data, tolerance=0.05),
        "the network's own": _constant(
            network("torchvision:mobilenet_v3_small"), labelled(size=32), 32, tolerance=10.0
        ),
    }


def budget() -> object:
    data = labelled(32)
    return {
        "output": _budget(_gated(), data, 0.1),
        "all": _budget(_gated(), data, "all"),
        "loss": _budget(_gated(), data, 0.05, cost="loss"),
    }


def cost_curve() -> object:
    from attnlab.surgery.folding import cost_curve

    data = labelled(32)
    found = {
        cost: cost_curve(_gated(), data, cost=cost, example=images(1))
        for cost in ("output", "loss")
    }
    return {
        cost: [[getattr(point, name) for name in POINT.split()] for point in curve.points]
        for cost, curve in found.items()
    }


def repaired() -> object:
    from attnlab.surgery.repair import Distil

    data = labelled(32)
    return _budget(_gated(), data, "all", repair=Distil(epochs=1))
