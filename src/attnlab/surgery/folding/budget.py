"""What it would cost to make gates constant, before it is done."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from attnlab._checked import check_batches, check_module
from attnlab._errors import FoldError
from attnlab.residuals import watchable
from attnlab.residuals.example import Example
from attnlab.residuals.inputs import head
from attnlab.residuals.library import OwnGates, unknown_attention
from attnlab.surgery.folding._choose import Choice, choose
from attnlab.surgery.folding._cost import CostName, check_cost
from attnlab.surgery.folding._halves import halves
from attnlab.surgery.folding._places import inserted_places, own_places
from attnlab.surgery.folding.curve import Curve

_IN_EXAMPLE = 4
"""Images on which the data flow is recorded and the fold is checked."""


def cost_curve(
    model: nn.Module,
    images: Iterable[object],
    *,
    cost: CostName = "output",
    gates: OwnGates | None = None,
    add_affine: bool = False,
    example: Example | None = None,
) -> Curve:
    """Return what it costs to make the gates of `model` constant, one after the other, the cheapest
    first.

    Predicted on half of the images, measured on the other half; nothing is folded. The arguments
    are those of `fold_budget`, whose budget takes a part of this curve: `within(budget)`.
    """
    check_module(model)
    check_batches(images, "the images")
    return choice_of(model, images, cost, example, gates, add_affine=add_affine)[0].curve


def choice_of(
    model: nn.Module,
    images: Iterable[object],
    cost: CostName,
    example: Example | None,
    gates: OwnGates | None,
    *,
    add_affine: bool,
) -> tuple[Choice, Example]:
    """Return which gates can be constant, and the example on which that was found."""
    check_cost(cost)
    data = halves(model, images)
    check_cost(cost, data)
    if example is None:
        example = head(data.choosing[0].inputs, _IN_EXAMPLE)
    found = watchable(model, example, gates)
    places = inserted_places(model) + own_places(model, found, example)
    if not places:
        raise FoldError(
            f"{type(model).__name__} carries no gate that could be made constant. Expected one "
            f"that attnlab inserted, squeeze-and-excitation or ECA of timm or torchvision, gated "
            f"attention of a language model, or a class of your own that gates= names."
            f"{unknown_attention(model)}"
        )
    return choose(model, found, places, data, cost, example, may_add_affine=add_affine), example
