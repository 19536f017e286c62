"""Fold gates back into the network: a plain network again, with a receipt.

`fold` takes gates that are constant, exactly. `fold_constants` and `fold_budget` first replace
gates that depend on the input by constants from images: each gate that varies little, or as many as
a budget allows together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Literal, TypedDict

import torch
from torch import nn
from torch.optim import Optimizer

from attnlab._checked import check_batches, check_module, check_values
from attnlab._errors import FoldError
from attnlab.residuals import watchable
from attnlab.residuals.copying import without_collecting
from attnlab.residuals.example import Example
from attnlab.residuals.library import OwnGates
from attnlab.surgery.answer import Answer
from attnlab.surgery.double import copied
from attnlab.surgery.folding._checks import (
    check_budget,
    check_foldable,
    check_places,
    check_repair,
    check_tolerance,
)
from attnlab.surgery.folding._choose import Choice
from attnlab.surgery.folding._cost import CostName
from attnlab.surgery.folding._fuse import merge_in_double
from attnlab.surgery.folding._means import as_examples, with_means
from attnlab.surgery.folding._norms import set_statistics
from attnlab.surgery.folding._places import (
    Place,
    PlaceKey,
    inserted_places,
    own_places,
    scale_places,
)
from attnlab.surgery.folding._surgery import Surgery, decide
from attnlab.surgery.folding._verify import check_exact
from attnlab.surgery.folding._walk import Scaling
from attnlab.surgery.folding.budget import choice_of
from attnlab.surgery.folding.curve import Budget, Curve
from attnlab.surgery.folding.fuse import ONLY_EVAL
from attnlab.surgery.folding.receipt import FoldReceipt, SiteRow
from attnlab.surgery.history import FoldedOrFused, record_event, record_start
from attnlab.surgery.optimizer import check_optimizer, following
from attnlab.surgery.ordinary import making_ordinary_tensors
from attnlab.surgery.original import Original
from attnlab.surgery.repair import Distil, Lesson, Repair, distil

_NORMS_MOVED = "BatchNorm's statistics were moved with what the norms see of the data"
_NOT_COUNTED = (
    "MACs are not counted: how much the network computes depends on what it selects, and the two "
    "runs did not select the same"
)


@making_ordinary_tensors
@without_collecting()
def fold(
    model: nn.Module,
    *,
    partial: bool = False,
    fuse: bool = False,
    add_affine: bool = False,
    example: Example | None = None,
    inplace: bool = False,
    optimizer: Optimizer | None = None,
) -> tuple[nn.Module, FoldReceipt]:
    """Fold every constant gate of `model` into the layers around it; return the plain network.

    The result has the modules and state-dict keys that the network had before insertion, and the
    same outputs, in eval and in train mode; it is checked in float64, in eval mode, at every site.
    A gate that cannot go is an error that names its site and the reason, and nothing is changed.
    Gates that depend on the input are for `fold_constants` and `fold_budget`.

    Of a network without inserted gates, the constants of its own go that scale the branches of its
    steps: LayerScale, ReZero, residual multipliers. A module that does nothing else becomes
    `nn.Identity` (not in networks of Hugging Face, whose folders keep their keys); any other
    constant becomes 1.

    Args:
        model: a network with gates, or constants of its own; it is not changed unless
            `inplace=True`.
        partial: keep gates that cannot be folded, instead of an error; the receipt names them.
        fuse: also merge re-parameterisable branches and BatchNorm into convolutions, for the
            fastest network: in eval mode only, and with fewer keys.
        add_affine: give a norm without affine parameters some, if nothing else can take a gate.
        example: an input to run the network on; random numbers of its size if left out.
        inplace: change `model` itself.
        optimizer: with `inplace=True`, lose the parameters of the gates that go from this one.
    """
    check_optimizer(optimizer, inplace)
    flags = {"fuse": fuse, "partial": partial, "add_affine": add_affine, "inplace": inplace}
    began = _begin(model, fold, flags)
    places = inserted_places(model)
    original = Original.of(model, example, began)
    if not places and not fuse:
        places = scale_places(model, original.run)
    check_places(model, places, partial, fuse)
    surgery = decide(
        model, original.run.graph, places, example, partial=partial, may_add_affine=add_affine
    )
    if fuse:
        _refuse_to_merge_hosts(surgery)
    checked = _check(model, surgery, original, fuse=fuse)
    network = model if inplace else copied(model, surgery.leaving(model))
    record_start(network, example)
    with following(optimizer, network):
        surgery.perform(network)
        notes = [_fused(network, example)] if fuse else []
    return network, checked.receipt(network, notes)


@making_ordinary_tensors
def fold_constants(
    model: nn.Module,
    images: Iterable[object],
    *,
    tolerance: float = 0.1,
    gates: OwnGates | None = None,
    add_affine: bool = False,
    example: Example | None = None,
) -> tuple[nn.Module, FoldReceipt]:
    """Replace gates that hardly depend on the input by their means over `images`, and fold them.

    A gate is replaced if its relative spread over the images, and the relative change of the output
    when it alone is replaced, are both at most `tolerance`. Inserted gates and the network's own
    squeeze-and-excitation are looked at; the others stay, and the receipt says why. To merge norms
    as well, fold the result: `fold(network, fuse=True)`.

    Args:
        model: a network with gates; it is not changed.
        images: batches of inputs.
        tolerance: the largest spread and the largest change of the output.
        gates: attention classes of your own with what returns the gate, `{"SELayer": "fc"}`.
        add_affine: give a norm without affine parameters some, if nothing else can take a gate.
        example: an input to compare the two networks on; the first batch if left out.
    """
    began = _begin(model, fold_constants, {"tolerance": tolerance, "add_affine": add_affine})
    check_tolerance(tolerance)
    check_batches(images, "the images")
    first, batches = as_examples(model, images)
    example = first if example is None else example
    found = watchable(model, example, gates)
    places = inserted_places(model) + own_places(model, found, example)
    places = with_means(model, found, places, batches, tolerance)
    checked = _decide_what_goes(model, places, example, add_affine, began)
    network = checked.perform(model)
    return network, checked.receipt(network, [])


@making_ordinary_tensors
def fold_budget(
    model: nn.Module,
    images: Iterable[object],
    budget: Budget,
    *,
    cost: CostName = "output",
    repair: Literal["distil"] | Distil | None = None,
    gates: OwnGates | None = None,
    add_affine: bool = False,
    example: Example | None = None,
) -> tuple[nn.Module, FoldReceipt]:
    """Replace as many gates by constants as keep the predicted cost within `budget`; fold them.

    Gates go in the order of what they cost together on half of the images; the receipt has the
    whole curve, and what was measured on the other half. Constants are least squares of the gated
    branch, and BatchNorm's statistics move with what the norms see.

    Args:
        model: a network with gates; it is not changed.
        images: batches of inputs, or of (inputs, classes).
        budget: the largest predicted cost; "all" takes every gate that can go.
        cost: the relative change of the "output", the share of "answers" that change or, with
            classes, the rise of the "loss" or the fall of the "accuracy".
        repair: let the original teach the folded network on the half that chose, without classes:
            "distil", or an `attnlab.surgery.repair.Distil` with its settings.
        gates: attention classes of your own with what returns the gate, `{"SELayer": "fc"}`.
        add_affine: give a norm without affine parameters some, if nothing else can take a gate.
        example: an input to compare the two networks on; the first images if left out.
    """
    began = _begin(model, fold_budget, {"add_affine": add_affine})
    check_budget(budget)
    check_repair(repair)
    check_batches(images, "the images")
    choice, example = choice_of(model, images, cost, example, gates, add_affine=add_affine)
    places, _ = choice.within(budget)
    checked = _decide_what_goes(model, places, example, add_affine, began)
    return _within_budget(model, checked, choice, budget, repair)


def _begin(
    model: nn.Module, function: Callable[..., object], options: Mapping[str, object]
) -> float:
    """Refuse what is not a network that can be folded; the time at which the work begins."""
    check_module(model)
    check_values(function.__name__, function, options)
    check_foldable(model)
    return perf_counter()


def _refuse_to_merge_hosts(surgery: Surgery) -> None:
    if any(place.kept and not place.own for place in surgery.places):
        raise FoldError(
            "fuse=True would merge the modules that the gates which stay are attached to. Fold "
            "without fuse=True, or so that every inserted gate goes."
        )


def _decide_what_goes(
    model: nn.Module, places: Sequence[Place], example: Example, add_affine: bool, began: float
) -> _Checked:
    """Decide which gates that were given constants fold: those that no layer can take stay."""
    check_places(model, places, partial=True, fuse=False)
    original = Original.of(model, example, began)
    surgery = decide(
        model, original.run.graph, places, example, partial=True, may_add_affine=add_affine
    )
    return _check(model, surgery, original)


def _within_budget(
    model: nn.Module,
    checked: _Checked,
    choice: Choice,
    budget: Budget,
    repair: Literal["distil"] | Distil | None,
) -> tuple[nn.Module, FoldReceipt]:
    """Fold what the budget allows, repair the result, and measure what it cost."""
    teaching = None if repair is None else _Teaching.of(model, choice, checked.surgery, repair)
    network = checked.perform(model)
    notes = []
    _, statistics = choice.within(budget)
    if statistics:  # none of a network without BatchNorm
        set_statistics(network, statistics)
        notes.append(_NORMS_MOVED)
    spent = _spend(network, choice, budget, teaching)
    notes += _overspent(spent["measured"], budget)
    return network, replace(checked.receipt(network, notes), **spent)


@dataclass(frozen=True)
class _Checked:
    """A fold that was decided and checked on a copy in float64; the network is as it was."""

    original: Original
    surgery: Surgery
    errors: dict[PlaceKey, float]
    float64_change: float | None
    notes: list[str]
    name: str
    fuse: bool

    def perform(self, model: nn.Module) -> nn.Module:
        """A copy of `model`, folded."""
        network = copied(model, self.surgery.leaving(model))
        record_start(network, self.original.example)
        self.surgery.perform(network)
        return network

    def receipt(self, network: nn.Module, notes: Sequence[str]) -> FoldReceipt:
        """What the fold did to `network`, with `notes` on what was done besides."""
        after = self._answer_of(network)
        counted = not self.original.work_depends_on_values or self._same_work(after)
        figures = self.original.figures(network, after, after.macs if counted else None)
        places = self.surgery.places
        removed = tuple(p.site.module for p in places if p.folded and p.leaves(network))
        record_event(network, FoldedOrFused(list(removed), list(self.surgery.affine), self.fuse))
        return FoldReceipt(
            action=_action(self.name, places, self.fuse),
            sites=tuple(place.name for place in places if place.folded),
            notes=(*self.notes, *notes, *([] if counted else [_NOT_COUNTED])),
            rows=tuple(_rows(self.surgery, self.errors)),
            float64_change=self.float64_change,
            removed=removed,
            affine=self.surgery.affine,
            fused=self.fuse,
            **figures,
        )

    def _answer_of(self, network: nn.Module) -> Answer:
        all_went = all(not (place.own or place.kept) for place in self.surgery.places)
        if all_went and not (self.fuse or self.original.work_depends_on_values):
            return self.original.answer_without_gates(network)
        return self.original.answer_of(network)

    def _same_work(self, after: Answer) -> bool:
        """Whether the two networks differ by what the gates compute."""
        before = self.original.answer
        return before.macs - after.macs == before.gate_macs - after.gate_macs


def _check(
    model: nn.Module, surgery: Surgery, original: Original, *, fuse: bool = False
) -> _Checked:
    errors, change, notes = check_exact(model, surgery, original, fuse=fuse)
    if surgery.affine:
        notes.append(f"added affine parameters, so new keys, to {', '.join(surgery.affine)}")
    return _Checked(original, surgery, errors, change, notes, type(model).__name__, fuse)


class _Spent(TypedDict):
    """The fields of a receipt about the cost of constants."""

    curve: Curve
    predicted: float
    measured: float
    accuracy_before: float | None
    accuracy_after: float | None
    accuracy_error: float | None
    repair: Repair | None
    measured_before_repair: float | None


@dataclass(frozen=True)
class _Teaching:
    """A repair that was asked for: what the original answers, and which parameters took
    constants."""

    lessons: Sequence[Lesson]
    taken: Sequence[str]
    settings: Distil

    @classmethod
    def of(
        cls, model: nn.Module, choice: Choice, surgery: Surgery, repair: Literal["distil"] | Distil
    ) -> _Teaching:
        settings = repair if isinstance(repair, Distil) else Distil()
        return cls(choice.lessons(model), tuple(surgery.product), settings)


def _spend(
    network: nn.Module, choice: Choice, budget: Budget, teaching: _Teaching | None
) -> _Spent:
    """Repair `network` if that is asked for, and measure what the constants cost."""
    taken = choice.curve.within(budget)
    measured, before, repair = choice.held_out.judge(network), None, None
    if teaching is not None:
        before = measured.value
        repair = distil(network, teaching.lessons, teaching.taken, teaching.settings)
        measured = choice.held_out.judge(network)
    return {
        "curve": replace(choice.curve, budget=budget),
        "predicted": choice.curve.points[taken - 1].predicted if taken else 0.0,
        "measured": measured.value,
        "accuracy_before": choice.held_out.accuracy,
        "accuracy_after": measured.accuracy,
        "accuracy_error": measured.accuracy_error,
        "repair": repair,
        "measured_before_repair": before,
    }


def _overspent(measured: float, budget: Budget) -> list[str]:
    # Written so that a NaN counts as more.
    if budget == "all" or measured <= budget:
        return []
    return [
        f"on the images held out the cost is {measured:.4f}, more than the budget {budget:g}: give "
        f"more images, or a smaller budget"
    ]


def _fused(network: nn.Module, example: Example | None) -> str:
    merged = merge_in_double(network, example)
    return f"merged {merged.in_words}: {ONLY_EVAL}"


def _action(name: str, places: Sequence[Place], fuse: bool) -> str:
    count = sum(len(place.folded) for place in places)
    gates = f"folded {count} gate{'' if count == 1 else 's'} of {name}"
    if not fuse:
        return gates
    return f"{gates} and fused it" if places else f"fused {name}"


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
                smallest=float(vector.detach().min()),
                largest=float(vector.detach().max()),
                error=errors.get(place.key),
                spread=place.spread,
                predicted_change=place.predicted_change,
                kept=place.reason,
                undone_by=tuple(sorted(scaling.inverse)),
                silenced=tuple(sorted(scaling.silenced)),
            )
        )
    return rows
