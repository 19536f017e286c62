"""Choose which gates to make constant, from what that costs on data."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import inf, isfinite
from typing import TypeVar

from torch import Tensor, nn

from attnlab._errors import FoldError
from attnlab.residuals import Watchable
from attnlab.residuals.example import Example
from attnlab.residuals.watching import watching
from attnlab.surgery.answer import calls_to_compare
from attnlab.surgery.folding._cost import CostName, Judge
from attnlab.surgery.folding._fit import fit
from attnlab.surgery.folding._halves import Halves, Part, in_two
from attnlab.surgery.folding._means import NOT_ALONE
from attnlab.surgery.folding._norms import Norms, Statistics, with_statistics
from attnlab.surgery.folding._places import Held, Place, PlaceKey
from attnlab.surgery.folding._surgery import decide
from attnlab.surgery.folding._taps import Holds, Tap, tapped
from attnlab.surgery.folding.curve import Budget, Curve, CurvePoint
from attnlab.surgery.repair import Lesson


@dataclass(frozen=True)
class Simulation:
    """A network whose gates are watched, and constants that some of them can be held at."""

    model: nn.Module
    taps: Mapping[str, Tap]
    gates: Mapping[PlaceKey, Sequence[str]]
    """The gates of each place, by name."""
    constants: Mapping[str, Tensor]
    norms: Norms

    @property
    def images(self) -> int:
        """The number of images on which the constants were made."""
        return sum(part.images for part in self.norms.parts)

    @contextmanager
    def held(self, keys: Iterable[PlaceKey]) -> Iterator[None]:
        """The gates of these places are constant."""
        names = [name for key in keys for name in self.gates[key]]
        try:
            for name in names:
                self.taps[name].held_at = self.constants[name]
            yield
        finally:
            for name in names:
                self.taps[name].held_at = None

    @contextmanager
    def moved_norms(self) -> Iterator[Statistics]:
        """Inside, the statistics of the norms are those that follow from the gates; they are
        yielded."""
        moved = self.norms.moved(self.model)
        with with_statistics(self.model, moved):
            yield moved

    def joint_cost(self, judge: Judge, keys: Iterable[PlaceKey]) -> float:
        """Return what it costs to hold these places at once. The change of an output is squared,
        because the squares of changes that have nothing to do with each other add up."""
        with self.held(keys):
            value = judge.judge(self.model).value
        return value**2 if judge.cost == "output" else value


Key = TypeVar("Key", bound=Hashable)


def greedy(keys: Iterable[Key], cost: Callable[[frozenset[Key]], float]) -> list[Key]:
    """Put all of `keys` in order: next comes the one that costs least together with those before.

    Lazily: what a key added when it was last tried orders the trials, and one that is still the
    cheapest after a fresh trial is taken. Where a key adds no less in larger company, that is the
    order of trying all of them each time, with far fewer trials.
    """
    # First those that were never tried: what one of them adds may be negative.
    waiting = [(-inf, -1, number, key, inf) for number, key in enumerate(keys)]
    heapq.heapify(waiting)
    taken: list[Key] = []
    before = 0.0
    while waiting:
        _, tried_with, number, key, together = heapq.heappop(waiting)
        if tried_with == len(taken):
            taken.append(key)
            before = together
            continue
        together = cost(frozenset((*taken, key)))
        added = together - before if isfinite(together) else inf
        heapq.heappush(waiting, (added, len(taken), number, key, together))
    return taken


@dataclass(frozen=True)
class Choice:
    """Which gates can be constant, in which order, and what that costs."""

    before: tuple[Place, ...]
    ready: Mapping[PlaceKey, Place]
    """All places, with the constants of gates that can have one and that a layer can take."""
    order: tuple[PlaceKey, ...]
    """The places whose gates were given constants here, the cheapest first."""
    statistics: tuple[Statistics, ...]
    """Those of the norms when one, two, ... of the places are constant."""
    curve: Curve
    choosing: Judge
    held_out: Judge

    def lessons(self, model: nn.Module) -> tuple[Lesson, ...]:
        """Return what `model`, the original, answers on the images that chose."""
        if self.choosing.calls:
            raise FoldError(
                f"{type(model).__name__} selects what it returns, as detectors do, so there is no "
                f"answer that another could learn. Fold it without repair=."
            )
        parts = zip(self.choosing.parts, self.choosing.before, strict=True)
        return tuple(Lesson(part.inputs, answers) for part, answers in parts)

    def within(self, budget: Budget) -> tuple[tuple[Place, ...], Statistics | None]:
        """The places with as many constants as the budget allows, and what the norms get then."""
        taken = self.curve.within(budget)
        places = []
        for place in self.before:
            number = self.order.index(place.key) if place.key in self.order else -1
            found = self.ready[place.key]
            if number >= 0:
                found = replace(found, predicted_change=self.curve.points[number].predicted)
            if number >= taken:
                reason = f"beyond the budget {budget}"
                gates = (
                    held if held.constant is not None else replace(held, reason=reason)
                    for held in place.gates
                )
                found = replace(found, gates=tuple(gates))
            places.append(found)
        return tuple(places), self.statistics[taken - 1] if taken else None


def choose(
    model: nn.Module,
    found: Watchable,
    places: Sequence[Place],
    data: Halves,
    cost: CostName,
    example: Example | None,
    *,
    may_add_affine: bool,
) -> Choice:
    """Constants by least squares on the images that choose, and the order in which gates go."""
    # Not of gates that hand a memory to the next or scale the state, nor where a module runs
    # several times.
    alone = {gate.name for gate in found.gates if not isinstance(gate.module, NOT_ALONE)}
    taps, constants = fit(model, found, places, data.choosing)
    fitted = [_with_constants(place, taps, constants, alone) for place in places]
    decided = decide(
        model, found.run.graph, fitted, example, partial=True, may_add_affine=may_add_affine
    )
    ready = decided.places
    gates = {p.key: tuple(h.name for h in p.folded if h.name in taps) for p in ready}
    gates = {key: names for key, names in gates.items() if names}
    first, second = in_two(data.choosing)
    calls = calls_to_compare(found.run)

    def judging(parts: Sequence[Part]) -> Judge:
        return Judge.of(cost, parts, model, calls)

    def simulated(parts: Sequence[Part], values: Mapping[str, Tensor]) -> Simulation:
        return Simulation(model, taps, gates, values, Norms.of(model, parts))

    # Before the gates are watched, which fitting does by itself.
    pairs = ((first, second), (second, first))
    crossed = [(fit(model, found, places, a)[1], a, b) for a, b in pairs]
    with watching(model, Holds(taps), found=tapped(found, taps)):
        choosing, held_out = judging(data.choosing), judging(data.held_out)
        whole = simulated(data.choosing, constants)
        order = greedy(gates, partial(whole.joint_cost, choosing))
        halves = [(simulated(a, values), judging(b)) for values, a, b in crossed]
        points, statistics = [], []
        names = {place.key: place.name for place in ready}
        for number in range(1, len(order) + 1):
            keys = order[:number]
            # Judged where it was not fitted: on its own images a fit looks better than it is.
            changes = []
            for simulation, judge in halves:
                with simulation.held(keys), simulation.moved_norms():
                    changes.append(judge.changes(judge.answers(model)))
            predicted = held_out.cost_of(changes)
            with whole.held(keys), whole.moved_norms() as moved:
                measured = held_out.judge(model)
            statistics.append(moved)
            points.append(
                CurvePoint(
                    names[keys[-1]],
                    predicted.value,
                    predicted.bound,
                    measured.value,
                    measured.accuracy,
                    measured.accuracy_error,
                )
            )
    curve = Curve(cost, whole.images, held_out.images, tuple(points), held_out.accuracy)
    by_key = {place.key: place for place in ready}
    return Choice(tuple(places), by_key, tuple(order), tuple(statistics), curve, choosing, held_out)


def _with_constants(
    place: Place, taps: Mapping[str, Tap], constants: Mapping[str, Tensor], alone: set[str]
) -> Place:
    gates = tuple(
        _with_constant(held, taps.get(held.name), constants) if held.name in alone else held
        for held in place.gates
    )
    seen = [taps[held.name] for held in place.gates if held.name in constants]
    return replace(place, gates=gates, spread=max((tap.spread() for tap in seen), default=None))


def _with_constant(held: Held, tap: Tap | None, constants: Mapping[str, Tensor]) -> Held:
    if tap is None:
        return held
    if tap.varies_in_space:
        return replace(held, reason="its gate differs from pixel to pixel")
    if not tap.images:
        return replace(held, reason="the data do not reach it")
    return replace(held, constant=constants[held.name], reason="")
