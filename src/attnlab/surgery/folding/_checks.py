"""What folding refuses before it does anything."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import torch
from torch import nn

from attnlab._errors import FoldError, InputError, OptionError
from attnlab.gates import InstanceEnhancementBatchNorm
from attnlab.residuals.listing import list_modules, registered
from attnlab.surgery.folding._places import Place
from attnlab.surgery.folding._surgery import refusal_error
from attnlab.surgery.repair import Distil

_WRAPPERS = (
    "OptimizedModule",
    "DistributedDataParallel",
    "DataParallel",
    "FullyShardedDataParallel",
)


def check_foldable(model: nn.Module) -> None:
    """Refuse networks that cannot be folded whatever the gates are."""
    wrapper = type(model).__name__
    if wrapper in _WRAPPERS or isinstance(model, torch.jit.ScriptModule):
        raise InputError(
            f"The model is wrapped or scripted ({wrapper}). Fold the network inside, and wrap the "
            f"result."
        )
    modules = list_modules(model)
    parameters = [parameter for _, parameter in registered(modules, "_parameters")]
    if any(parameter.is_meta for parameter in parameters):
        raise InputError("The network is on the meta device: it has no values to fold.")
    if any(hasattr(parameter, "full_tensor") for parameter in parameters):
        raise InputError(
            "The network's parameters are distributed over processes (fully_shard), and none has "
            "all their values. Fold the network before it is sharded, or one with its full state "
            "dict."
        )
    inside = [name for name, module in modules if isinstance(module, InstanceEnhancementBatchNorm)]
    if inside:
        raise FoldError(
            f"{len(inside)} norms of {type(model).__name__} ({', '.join(inside[:3])}, ...) are "
            f"IEBN, whose gate is part of the norm and depends on the input. Expected gates that "
            f"are constant: insert(model, 'asr:ie')."
        )


def check_tolerance(tolerance: float) -> None:
    """Refuse a tolerance that no spread could be compared with."""
    if not 0 <= tolerance < inf:
        raise OptionError(f"Expected tolerance to be a number of at least 0 but got {tolerance}.")


def check_budget(budget: object) -> None:
    """Refuse a budget that no cost could be compared with."""
    number = isinstance(budget, int | float) and not isinstance(budget, bool)
    if budget != "all" and not (number and 0 <= float(str(budget)) < inf):
        raise OptionError(
            f"Expected budget to be a number of at least 0, or 'all', but got {budget!r}."
        )


def check_repair(repair: object) -> None:
    """Refuse a repair that is not known."""
    if repair is not None and repair != "distil" and not isinstance(repair, Distil):
        raise OptionError(f"Expected repair to be 'distil' or a Distil but got {repair!r}.")


def check_places(model: nn.Module, places: Sequence[Place], partial: bool, fuse: bool) -> None:
    """Refuse a network without gates, and gates that cannot go, unless some may stay."""
    if not places and not fuse:
        raise FoldError(
            f"{type(model).__name__} carries no gate that could be folded, and no constant of its "
            f"own such as LayerScale. Expected a network from insert(model, 'asr:se') or the like; "
            f"fold_constants and fold_budget also take one with squeeze-and-excitation of its own."
        )
    dependent = [(place, place.reason) for place in places if place.kept]
    if dependent and not partial:
        raise refusal_error(
            dependent,
            len(places),
            _instead(any(place.folded for place in places)),
        )


def _instead(others: bool) -> str:
    """What to do about gates that depend on the input; `others`: some fold."""
    train = "Train with a constant gate instead (insert(model, 'asr:se')),"
    means = "replace these by constants from images (fold_constants, fold_budget)"
    if not others:
        return f"{train} or {means}."
    return f"{train} {means}, or keep them and fold the others (partial=True)."
