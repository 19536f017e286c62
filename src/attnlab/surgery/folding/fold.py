"""Fold constant gates back into the network: a plain network again, with a receipt."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import torch
from torch import nn

from attnlab._checked import check_batches, check_module, check_values
from attnlab._errors import FoldError
from attnlab.residuals import watchable
from attnlab.residuals.example import Example, run_once
from attnlab.residuals.library import OwnGates
from attnlab.residuals.selection import work_depends_on_values
from attnlab.surgery.answer import Answer, answer, answer_of_run, calls_to_compare
from attnlab.surgery.change import change_between
from attnlab.surgery.folding._checks import check_constants, check_foldable, check_places
from attnlab.surgery.folding._choose import Choice
from attnlab.surgery.folding._cost import CostName
from attnlab.surgery.folding._fuse import fuse as fuse_network
from attnlab.surgery.folding._means import as_examples, with_means
from attnlab.surgery.folding._norms import Statistics, set_statistics
from attnlab.surgery.folding._places import Place, PlaceKey, inserted_places, own_places
from attnlab.surgery.folding._surgery import Surgery, decide
from attnlab.surgery.folding._verify import check_exact, double_example
from attnlab.surgery.folding._walk import Scaling
from attnlab.surgery.folding.budget import choice_of
from attnlab.surgery.folding.curve import Budget
from attnlab.surgery.folding.receipt import FoldReceipt, SiteRow
from attnlab.surgery.receipt import count_parameters
from attnlab.surgery.repair import Distil, Lesson, distil


def fold(
    model: nn.Module,
    *,
    fuse: bool = False,
    constants: Iterable[Any] | None = None,
    tolerance: float | None = None,
    budget: Budget | None = None,
    cost: CostName = "output",
    gates: OwnGates | None = None,
    repair: Literal["distil"] | Distil | None = None,
    report: Callable[[int, float], None] | None = None,
    checkpoints: str | Path | None = None,
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
    inserted ones and the network's own squeeze-and-excitation, are replaced by constants. `gates`
    names classes of attention that are yours, `{"SELayer": "fc"}`: what of it returns its gate.

    With a `budget`, as many gates go as keep the predicted `cost` within it: the relative change of
    the "output", the share of "answers" that change, or, where batches are (images, classes), the
    rise of the "loss" or the fall of the "accuracy". They go in the order of what they cost
    together, on half of the images; the receipt has the whole curve, and what was measured on the
    other half. Constants are least squares of the gated branch, and BatchNorm's statistics move
    with what the norms see. `budget="all"` takes all that can go. `repair="distil"`, or a `Distil`
    of `attnlab.surgery.repair` with its settings, then lets the original teach the folded network
    on the half that chose; classes are not used. `report` is told of each epoch, and its loss.
    `checkpoints` is a folder for one after every epoch: the same call, after a stop, chooses anew
    and goes on with the repair from there, to the same bits.

    Without, a gate is replaced by its mean over the data where both its relative spread and the
    relative change of the output are at most `tolerance` (0.1); the others stay.
    """
    began = perf_counter()
    check_module(model)
    flags = {"fuse": fuse, "partial": partial, "add_affine": add_affine, "inplace": inplace}
    check_values("fold", fold, {**flags, "tolerance": tolerance})
    check_foldable(model)
    check_constants(constants, tolerance, budget, cost, gates, repair, checkpoints)
    places = inserted_places(model)
    choice: Choice | None = None
    statistics: Statistics | None = None
    if constants is not None:
        check_batches(constants, "constants")
        partial = True
        if budget is None:
            first, batches = as_examples(model, constants)
            example = first if example is None else example
            found = watchable(model, example, gates)
            places += own_places(model, found, example)
            places = with_means(
                model, found, places, batches, 0.1 if tolerance is None else tolerance
            )
        else:
            choice, example = choice_of(
                model, constants, cost, example, gates, add_affine=add_affine
            )
            chosen, statistics = choice.within(budget)
            places = list(chosen)
    check_places(model, places, partial, fuse)
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
    lessons = choice.lessons(model) if choice is not None and repair is not None else ()
    network = model if inplace else copy.deepcopy(model)
    surgery.perform(network)
    if statistics is not None:
        set_statistics(network, statistics)
        notes.append("BatchNorm's statistics were moved with what the norms see of the data")
    of_budget: dict[str, Any] = {}
    if choice is not None and budget is not None:
        of_budget = _of_budget(network, choice, budget)
        if repair is not None:
            of_budget |= _repaired(network, choice, surgery, lessons, repair, report, checkpoints)
        if budget != "all" and not of_budget["measured"] <= budget:
            notes.append(
                f"on the images held out the cost is {of_budget['measured']:.4f}, more than the "
                f"budget {budget:g}: give more images, or a smaller budget"
            )
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
        **of_budget,
    )
    return network, receipt


def _of_budget(network: nn.Module, choice: Choice, budget: Budget) -> dict[str, Any]:
    """What the receipt says about the cost of constants."""
    taken = choice.curve.within(budget)
    measured = choice.held_out.judge(network)
    return {
        "curve": replace(choice.curve, budget=budget),
        "predicted": choice.curve.points[taken - 1].predicted if taken else 0.0,
        "measured": measured.value,
        "accuracy_before": choice.held_out.accuracy,
        "accuracy_after": measured.accuracy,
        "accuracy_error": measured.accuracy_error,
    }


def _repaired(
    network: nn.Module,
    choice: Choice,
    surgery: Surgery,
    lessons: Sequence[Lesson],
    repair: Literal["distil"] | Distil,
    report: Callable[[int, float], None] | None,
    checkpoints: str | Path | None,
) -> dict[str, Any]:
    """Repair in place, and what the receipt says about it."""
    before = choice.held_out.judge(network).value
    settings = repair if isinstance(repair, Distil) else Distil()
    done = distil(network, lessons, surgery.product.keys(), settings, report, checkpoints)
    measured = choice.held_out.judge(network)
    return {
        "repair": done,
        "measured_before_repair": before,
        "measured": measured.value,
        "accuracy_after": measured.accuracy,
        "accuracy_error": measured.accuracy_error,
    }


def _same_work(before: Answer, after: Answer) -> bool:
    """Whether the two differ by what the gates compute."""
    return before.macs - after.macs == before.gate_macs - after.gate_macs


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
