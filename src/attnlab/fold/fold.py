"""Fold constant gates back into the network: a plain network again, with a receipt."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import Any

import torch
from torch import nn

from attnlab._checked import check_batches, check_module, check_values
from attnlab._errors import FoldError, InputError, OptionError
from attnlab.attention import InstanceEnhancementBatchNorm
from attnlab.fold._fuse import fuse as fuse_network
from attnlab.fold._means import as_examples, with_means
from attnlab.fold._places import Place, PlaceKey, inserted_places, own_places
from attnlab.fold._surgery import Surgery, decide, refusal_error
from attnlab.fold._verify import check_exact, double_example
from attnlab.fold._walk import Scaling
from attnlab.fold.receipt import FoldReceipt, SiteRow
from attnlab.insert import watchable
from attnlab.insert.answer import Answer, answer, answer_of_run, calls_to_compare
from attnlab.insert.change import change_between
from attnlab.insert.receipt import count_parameters
from attnlab.insert.selection import work_depends_on_values
from attnlab.record.example import Example, run_once

_WRAPPERS = (
    "OptimizedModule",
    "DistributedDataParallel",
    "DataParallel",
    "FullyShardedDataParallel",
)


def fold(
    model: nn.Module,
    *,
    fuse: bool = False,
    constants: Iterable[Any] | None = None,
    tolerance: float = 0.1,
    partial: bool = False,
    add_affine: bool = False,
    example: Example | None = None,
    inplace: bool = False,
) -> tuple[nn.Module, FoldReceipt]:
    """Fold every constant gate of `model` into the layers around it; return the plain network.

    The result has the modules and state-dict keys that the network had before insertion, and the
    same outputs, in eval and in train mode; it is checked in float64 at every site. A gate that
    cannot go is an error that names its site and the reason, and nothing is changed; with
    `partial=True` it stays and the receipt says so; with `add_affine=True` a norm without affine
    parameters is given some where nothing else can take the gate.

    `fuse=True` also merges re-parameterisable branches and BatchNorm into convolutions, for the
    fastest network: in eval mode only, and with fewer keys.

    `constants`, an iterable of input batches, folds approximately: gates that depend on the input,
    inserted ones and the network's own squeeze-and-excitation, are replaced by their mean over the
    data where both their relative spread and the relative change of the output are at most
    `tolerance`; the others stay.
    """
    began = perf_counter()
    check_module(model)
    flags = {"fuse": fuse, "partial": partial, "add_affine": add_affine, "inplace": inplace}
    check_values("fold", fold, {**flags, "tolerance": tolerance})
    _check(model, tolerance)
    places = inserted_places(model)
    if constants is not None:
        check_batches(constants, "constants")
        partial = True
        first, batches = as_examples(model, constants)
        example = first if example is None else example
        found = watchable(model, example)
        places += own_places(model, found)
        places = with_means(model, found, places, batches, tolerance)
    _check_places(model, places, partial, fuse)
    surgery = decide(model, places, example, partial=partial, may_add_affine=add_affine)
    if fuse and any(place.kept and not place.own for place in surgery.places):
        raise FoldError(
            "fuse=True would merge the modules that the gates which stay are attached to. Fold "
            "without fuse=True, or so that every inserted gate goes."
        )
    run = run_once(model, example)
    calls = calls_to_compare(run)
    errors, float64_change, notes = check_exact(model, surgery, example, calls, fuse=fuse)
    before = answer_of_run(run, model, example, calls)
    if surgery.affine:
        notes.append(f"added affine parameters, so new keys, to {', '.join(surgery.affine)}")
    parameters = count_parameters(model)
    network = model if inplace else copy.deepcopy(model)
    surgery.perform(network)
    if fuse:
        notes.append(_fused(network, example))
    after = answer(network, example, calls)
    change = change_between(before, after)
    same_work = not work_depends_on_values(run.graph) or _same_work(before, after)
    if not same_work:
        notes.append(
            "MACs are not counted: how much the network computes depends on what it selects, and "
            "the two runs did not select the same"
        )
    receipt = FoldReceipt(
        action=_action(model, surgery.places, fuse),
        sites=tuple(place.name for place in surgery.places if place.folded),
        parameters_before=parameters,
        parameters_after=count_parameters(network),
        macs_before=before.macs if same_work else None,
        macs_after=after.macs if same_work else None,
        max_change=change.largest,
        relative_change=change.relative,
        seconds=perf_counter() - began,
        notes=tuple(notes),
        compared=change.compared,
        rows=tuple(_rows(surgery, errors)),
        float64_change=float64_change,
        removed=tuple(p.site.module for p in surgery.places if p.own and p.folded),
        affine=surgery.affine,
        fused=fuse,
    )
    return network, receipt


def _same_work(before: Answer, after: Answer) -> bool:
    """Whether the two differ by what the gates compute."""
    return before.macs - after.macs == before.gate_macs - after.gate_macs


def _check(model: nn.Module, tolerance: float) -> None:
    wrapper = type(model).__name__
    if wrapper in _WRAPPERS or isinstance(model, torch.jit.ScriptModule):
        raise InputError(
            f"The model is wrapped or scripted ({wrapper}). Fold the network inside, and wrap the "
            f"result."
        )
    if any(parameter.is_meta for parameter in model.parameters()):
        raise InputError("The network is on the meta device: it has no values to fold.")
    if not 0 <= tolerance < float("inf"):
        raise OptionError(f"Expected tolerance to be a number of at least 0 but got {tolerance}.")
    inside = [
        name
        for name, module in model.named_modules()
        if isinstance(module, InstanceEnhancementBatchNorm)
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
        raise refusal_error(
            dependent,
            len(places),
            _instead(any(place.folded for place in places)),
        )


def _instead(others: bool) -> str:
    """What to do about gates that depend on the input; `others`: some fold."""
    train = "Train with a constant gate instead (insert(model, 'asr:se')),"
    means = "replace these by their means over data (constants=loader)"
    if not others:
        return f"{train} or {means}."
    return f"{train} {means}, or keep them and fold the others (partial=True)."


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


def _action(model: nn.Module, places: Sequence[Place], fuse: bool) -> str:
    count = sum(len(place.folded) for place in places)
    gates = f"folded {count} gate{'' if count == 1 else 's'} of {type(model).__name__}"
    if not fuse:
        return gates
    return f"{gates} and fused it" if places else f"fused {type(model).__name__}"


def _rows(surgery: Surgery, errors: dict[PlaceKey, float]) -> list[SiteRow]:
    rows = []
    for place in surgery.places:
        decided = surgery.decided.get(place.key)
        scaling = decided if isinstance(decided, Scaling) else Scaling({}, frozenset())
        vector = place.vector() if place.folded else torch.ones(1)
        rows.append(
            SiteRow(
                site=place.name,
                into=tuple(sorted(scaling.parameters, reverse=True)),
                smallest=float(vector.min()),
                largest=float(vector.max()),
                error=errors.get(place.key),
                spread=place.spread,
                predicted_change=place.predicted_change,
                kept=place.reason,
                undone_by=tuple(sorted(scaling.inverse)),
            )
        )
    return rows
