"""Fold constant gates back into the network: a plain network again, with a receipt."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from attnlab._errors import FoldError, InputError, OptionError
from attnlab.fold._fuse import fuse as fuse_network
from attnlab.fold._ids import Refusal
from attnlab.fold._library import own_places
from attnlab.fold._means import with_means
from attnlab.fold._places import Place, inserted_places
from attnlab.fold._plan import Plan, factors, multiply, plan
from attnlab.fold._swap import exchange
from attnlab.fold._verify import check_exact, double_example
from attnlab.fold._walk import Scaling
from attnlab.fold.receipt import FoldReceipt, SiteRow
from attnlab.insert import remove
from attnlab.insert._example import Example, measure, run_once
from attnlab.insert.receipt import count_parameters, output_change


def fold(
    model: nn.Module,
    *,
    fuse: bool = False,
    constants: Iterable[Any] | None = None,
    tolerance: float = 0.1,
    partial: bool = False,
    example: Example | None = None,
    inplace: bool = False,
) -> tuple[nn.Module, FoldReceipt]:
    """Fold every constant gate of `model` into the layers around it; return the plain network.

    The result has the modules and state-dict keys that the network had before insertion, and the
    same outputs, in eval and in train mode; it is checked in float64 at every site. A gate that
    cannot go is an error that names its site and the reason, and nothing is changed; with
    `partial=True` it stays and the receipt says so.

    `fuse=True` also merges re-parameterisable branches and BatchNorm into convolutions, for the
    fastest network: in eval mode only, and with fewer keys.

    `constants`, an iterable of input batches, folds approximately: gates that depend on the input,
    inserted ones and the network's own squeeze-and-excitation, are replaced by their mean over the
    data where both their relative spread and the relative change of the output are at most
    `tolerance`; the others stay.
    """
    began = perf_counter()
    _check(model, tolerance)
    places = inserted_places(model)
    if constants is not None:
        partial = True
        places += own_places(model, run_once(model, example).graph)
        places, first = with_means(model, places, constants, tolerance)
        example = first if example is None else example
    _check_places(model, places, partial, fuse)
    places, decided = _decided(model, places, example, partial)
    product = factors(places, decided)

    before, macs_before = measure(model, example)
    errors, float64_change, notes = check_exact(
        model, places, lambda network: _fold(network, places, product), example, fuse
    )
    parameters = count_parameters(model)
    network = model if inplace else copy.deepcopy(model)
    _fold(network, places, product)
    if fuse:
        notes.append(_fused(network, example))
    after, macs_after = measure(network, example)
    change, relative = output_change(before, after)
    receipt = FoldReceipt(
        action=f"folded {_count(places)} of {type(model).__name__}",
        sites=tuple(place.name for place in places if place.folded),
        parameters_before=parameters,
        parameters_after=count_parameters(network),
        macs_before=macs_before,
        macs_after=macs_after,
        max_change=change,
        relative_change=relative,
        seconds=perf_counter() - began,
        notes=tuple(notes),
        rows=tuple(_rows(places, decided, errors)),
        float64_change=float64_change,
    )
    return network, receipt


def _check(model: nn.Module, tolerance: float) -> None:
    if any(parameter.is_meta for parameter in model.parameters()):
        raise InputError("The network is on the meta device: it has no values to fold.")
    if not 0 <= tolerance < float("inf"):
        raise OptionError(f"Expected tolerance to be a number of at least 0 but got {tolerance}.")
    inside = [
        name
        for name, module in model.named_modules()
        if type(module).__name__ == "InstanceEnhancementBatchNorm"
    ]
    if inside:
        raise FoldError(
            f"{len(inside)} norms of {type(model).__name__} ({', '.join(inside[:3])}, ...) are "
            f"IEBN, whose gate is part of the norm and depends on the input. Expected gates that "
            f"are constant: insert(model, 'asr:ie')."
        )


def _check_places(model: nn.Module, places: Sequence[Place], partial: bool, fuse: bool) -> None:
    if not places and not fuse:
        raise FoldError(
            f"{type(model).__name__} carries no gate that could be folded. Expected a network from "
            f"insert(model, 'asr:se') or the like; with constants=, also one with "
            f"squeeze-and-excitation of its own."
        )
    dependent = [(place, place.reason) for place in places if place.kept]
    if dependent and not partial:
        raise _refused(
            dependent,
            len(places),
            "Train with a constant gate instead (insert(model, 'asr:se')), replace these by their "
            "means over data (constants=loader), or keep them and fold the others (partial=True).",
        )
    if fuse and any(place.kept and not place.own for place in places):
        raise FoldError(
            "fuse=True merges the modules on which the gates that stay depend. Fold without fuse, "
            "or choose tolerance= so that every inserted gate is folded."
        )


def _decided(
    model: nn.Module, places: list[Place], example: Example | None, partial: bool
) -> tuple[list[Place], Plan]:
    """Places and plan, until every gate that is not kept has a layer to go to."""
    while True:
        bare = copy.deepcopy(model)
        remove(bare)
        _take_out_own(bare, places)
        decided = plan(bare, places, example)
        refused = {key: str(why) for key, why in decided.items() if isinstance(why, Refusal)}
        if not refused:
            return places, decided
        if not partial:
            raise _refused(
                [(place, refused[place.key]) for place in places if place.key in refused],
                len(places),
                "Keep the gates there and fold the others: partial=True.",
            )
        # A gate that stays after all stands in the way of others, so all is decided again.
        places = [
            place.keeping(refused[place.key]) if place.key in refused else place for place in places
        ]


def _fold(network: nn.Module, places: Sequence[Place], product: dict[str, Tensor]) -> None:
    """Take the folded gates off `network` and multiply its parameters."""
    remove(network, keep=frozenset(held.name for place in places for held in place.kept))
    _take_out_own(network, places)
    multiply(network, product)


def _take_out_own(network: nn.Module, places: Sequence[Place]) -> None:
    for place in places:
        if place.own and place.folded:
            exchange(network, network.get_submodule(place.site.module), nn.Identity())


def _fused(network: nn.Module, example: Example | None) -> str:
    """Fuse in float64 where the network has one precision, and round once."""
    dtypes = {p.dtype for p in (*network.parameters(), *network.buffers()) if p.is_floating_point()}
    if len(dtypes) == 1:
        (dtype,) = dtypes
        blocks, norms = fuse_network(network.double(), double_example(network, example))
        network.to(dtype)
    else:
        blocks, norms = fuse_network(network, example)
    return (
        f"merged {blocks} re-parameterisable blocks and {norms} norms: it is for eval mode only, "
        f"and its keys are not the original's"
    )


def _count(places: Sequence[Place]) -> str:
    count = sum(len(place.folded) for place in places)
    return f"{count} gate{'' if count == 1 else 's'}"


def _refused(items: list[tuple[Place, str]], total: int, advice: str) -> FoldError:
    listed = "\n".join(f"  {place.name}: {reason}." for place, reason in items)
    return FoldError(
        f"The gates of {len(items)} of {total} sites cannot be folded:\n{listed}\n{advice}"
    )


def _rows(places: Sequence[Place], decided: Plan, errors: dict[str, float]) -> list[SiteRow]:
    rows = []
    for place in places:
        scaling = decided.get(place.key)
        into = sorted(scaling.parameters, reverse=True) if isinstance(scaling, Scaling) else []
        vector = place.vector() if place.folded else torch.ones(1)
        rows.append(
            SiteRow(
                site=place.name,
                into=tuple(into),
                smallest=float(vector.min()),
                largest=float(vector.max()),
                error=errors.get(place.key),
                spread=place.spread,
                predicted_change=place.predicted_change,
                kept=place.reason,
            )
        )
    return rows
