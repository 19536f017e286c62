"""Replace gates that hardly depend on the input by their mean over data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from torch import Tensor, nn

from attnlab._errors import InputError
from attnlab.gates import CarryGate, HyperConnections, StageGate
from attnlab.residuals import Watchable
from attnlab.residuals.example import Example
from attnlab.residuals.inputs import check_finite, inputs_of
from attnlab.residuals.padding import mask_argument
from attnlab.residuals.watching import watching
from attnlab.surgery.answer import Answer, answer, calls_to_compare, leaves
from attnlab.surgery.change import total_change
from attnlab.surgery.folding._places import Held, Place
from attnlab.surgery.folding._taps import Holds, Tap, Taps, tapped, taps_of

NOT_ALONE = (StageGate, CarryGate, HyperConnections)
"""Gates that do more than their value says, so that no constant stands for them."""


def with_means(
    model: nn.Module,
    found: Watchable,
    places: Sequence[Place],
    batches: Iterator[Example],
    tolerance: float,
) -> list[Place]:
    """`places` with the mean of every gate whose spread over the data, and whose effect on the
    output of the first batch when it alone is replaced, are at most `tolerance`."""
    # Not of gates that hand a memory to the next or scale the state, nor where a module runs
    # several times.
    alone = {gate.name for gate in found.gates if not isinstance(gate.module, NOT_ALONE)}
    taps = {name: tap for name, tap in taps_of(found, places).items() if name in alone}
    found = tapped(found, taps)
    changes: dict[str, float] = {}
    calls = calls_to_compare(found.run)
    with watching(model, Taps(taps, mask_argument(model)), found=found):
        first = next(batches)
        unchanged = _numbers(answer(model, first, calls))
        for batch in batches:
            answer(model, batch)
    # Not counted: the first batch, run again for each gate, would outweigh the others.
    with watching(model, Holds(taps), found=found):
        for name, watched in taps.items():
            if watched.images and not watched.varies_in_space:
                watched.held_at = watched.mean
                changed = _numbers(answer(model, first, calls))
                changes[name] = total_change(unchanged, changed)
                watched.held_at = None
    return [_decided(place, taps, changes, tolerance) for place in places]


def as_examples(model: nn.Module, batches: Iterable[Any]) -> tuple[Example, Iterator[Example]]:
    """The inputs of the first batch, and those of all batches (the first once more)."""
    examples = _finite(model, batches)
    first = next(examples, None)
    if first is None:
        raise InputError("The images gave no batch. Expected an iterable of input batches.")
    return first, chain((first,), examples)


def _finite(model: nn.Module, batches: Iterable[Any]) -> Iterator[Example]:
    for number, batch in enumerate(batches):
        for inputs in inputs_of(batch, model):
            check_finite(inputs, number)
            yield inputs


def _numbers(found: Answer) -> list[Tensor]:
    """What is compared of an answer."""
    tensors = list(found.seen.values()) or [tensor for _, tensor in leaves(found.output)]
    return [tensor.double() for tensor in tensors if tensor.is_floating_point()]


def _decided(
    place: Place, taps: Mapping[str, Tap], changes: Mapping[str, float], tolerance: float
) -> Place:
    gates = tuple(_with_mean(held, taps.get(held.name), changes, tolerance) for held in place.gates)
    spreads = [taps[held.name].spread() for held in place.gates if held.name in changes]
    effects = [changes[held.name] for held in place.gates if held.name in changes]
    return replace(
        place,
        gates=gates,
        spread=max(spreads, default=None),
        predicted_change=max(effects, default=None),
    )


def _with_mean(
    held: Held, watched: Tap | None, changes: Mapping[str, float], tolerance: float
) -> Held:
    if held.constant is not None:
        return held
    if watched is None:
        return held
    if watched.varies_in_space:
        return replace(held, reason="its gate differs from pixel to pixel")
    if not watched.images:
        return replace(held, reason="the data do not reach it")
    spread, change = watched.spread(), changes[held.name]
    if spread > tolerance:
        return replace(
            held, reason=f"its gate varies by {spread:.2g} over the data, more than {tolerance:g}"
        )
    if change > tolerance:
        return replace(
            held,
            reason=f"its mean would change the output by {change:.2g}, more than {tolerance:g}",
        )
    return replace(held, constant=watched.mean, reason="")
