"""Fold constant gates back into the network: a plain network again, with a receipt."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from time import perf_counter

import torch
from torch import nn

from attnlab._errors import FoldError, InputError
from attnlab.fold._ids import Refusal
from attnlab.fold._places import Place, inserted_places
from attnlab.fold._plan import Plan, factors, multiply, plan
from attnlab.fold._verify import MOST_PARAMETERS, in_float64, site_errors
from attnlab.fold._walk import Scaling
from attnlab.fold.receipt import FoldReceipt, SiteRow
from attnlab.insert import remove
from attnlab.insert._example import Example, measure
from attnlab.insert.receipt import count_parameters, output_change

EXACT = 1e-8
"""The largest relative error in float64, at any site or at the output, that passes for exact."""


def fold(
    model: nn.Module,
    *,
    partial: bool = False,
    example: Example | None = None,
    inplace: bool = False,
) -> tuple[nn.Module, FoldReceipt]:
    """Fold every constant gate of `model` into the layers around it; return the plain network.

    The result has the modules and state-dict keys that the network had before insertion, and the
    same outputs, in eval and in train mode. A gate that cannot go is an error that names its site
    and the reason, and nothing is changed; with `partial=True` it stays and the receipt says so.
    """
    began = perf_counter()
    places = inserted_places(model)
    _check(model, places, partial)
    work = copy.deepcopy(model)
    remove(work)
    places, decided = _decided(work, places, example, partial)
    product = factors(places, decided)
    kept = frozenset(held.name for place in places for held in place.kept)

    before, macs_before = measure(model, example)
    errors, float64_change, notes = _verified(model, places, kept, product, example)
    parameters = count_parameters(model)
    network = model if inplace else copy.deepcopy(model)
    remove(network, keep=kept)
    multiply(network, product)
    after, macs_after = measure(network, example)
    change, relative = output_change(before, after)
    receipt = FoldReceipt(
        action=f"folded {sum(len(place.folded) for place in places)} gates of {type(model).__name__}",
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


def _check(model: nn.Module, places: Sequence[Place], partial: bool) -> None:
    if any(parameter.is_meta for parameter in model.parameters()):
        raise InputError("The network is on the meta device: it has no values to fold.")
    if not places:
        raise FoldError(
            f"{type(model).__name__} carries no gate of attnlab. Expected a network from "
            f"insert(model, 'asr:se') or the like."
        )
    dependent = [place for place in places if place.kept]
    if dependent and not partial:
        raise _refused(
            [(place, place.reason) for place in dependent],
            len(places),
            "Train with a constant gate instead (insert(model, 'asr:se')), or keep these and fold "
            "the others: partial=True.",
        )


def _decided(
    work: nn.Module, places: list[Place], example: Example | None, partial: bool
) -> tuple[list[Place], Plan]:
    """Places and plan, until every gate that is not kept has a layer to go to."""
    while True:
        decided = plan(work, places, example)
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


def _refused(items: list[tuple[Place, str]], total: int, advice: str) -> FoldError:
    listed = "\n".join(f"  {place.name}: {reason}." for place, reason in items)
    return FoldError(
        f"The gates of {len(items)} of {total} sites cannot be folded:\n{listed}\n{advice}"
    )


def _verified(
    model: nn.Module,
    places: Sequence[Place],
    kept: frozenset[str],
    product: dict[str, torch.Tensor],
    example: Example | None,
) -> tuple[dict[str, float], float | None, list[str]]:
    """Errors by place, the relative change of the output, and notes; in float64."""
    if count_parameters(model) > MOST_PARAMETERS:
        return {}, None, ["not checked in float64: the network has too many parameters"]
    reference = in_float64(model)
    folded = in_float64(model)
    remove(folded, keep=kept)
    multiply(folded, product)
    try:
        found, expected_output, output = site_errors(reference, folded, places, example)
    except (RuntimeError, TypeError) as error:
        return {}, None, [f"not checked in float64, in which the network does not run: {error}"]
    errors = {place.key: error for place, error in zip(places, found, strict=True)}
    _, change = output_change(expected_output, output)
    wrong = [(p, f"error {errors[p.key]:.1e}") for p in places if not errors[p.key] <= EXACT]
    if wrong or change is None or not change <= EXACT:
        listed = "\n".join(f"  {place.name}: {what}." for place, what in wrong)
        raise FoldError(
            f"The folded network differs from the original in float64 (output: {change}), so "
            f"nothing was changed. This is a fault of attnlab's; please report it.\n{listed}"
        )
    return errors, change, []


def _rows(places: Sequence[Place], decided: Plan, errors: dict[str, float]) -> list[SiteRow]:
    rows = []
    for place in places:
        scaling = decided.get(place.key)
        vector = place.vector()
        rows.append(
            SiteRow(
                site=place.name,
                into=tuple(sorted(scaling.parameters, reverse=True))
                if isinstance(scaling, Scaling)
                else (),
                smallest=float(vector.min()),
                largest=float(vector.max()),
                error=errors.get(place.key),
                spread=place.spread,
                predicted_change=place.predicted_change,
                kept=place.reason,
            )
        )
    return rows
