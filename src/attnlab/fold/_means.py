"""Replace gates that hardly depend on the input by their mean over data."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map

from attnlab._errors import InputError
from attnlab.fold._places import Held, Place
from attnlab.fold._taps import Tap, tap
from attnlab.insert._attachment import StageAttachment
from attnlab.record.example import Example, as_call, evaluating


def with_means(
    model: nn.Module, places: Sequence[Place], batches: Iterable[Example], tolerance: float
) -> list[Place]:
    """`places` with the mean of every gate whose spread over the data, and whose effect on the
    output of the first batch when it alone is replaced, are at most `tolerance`."""
    network = copy.deepcopy(model)
    taps: dict[str, Tap] = {}
    for place in places:
        for held in place.gates:
            if held.constant is None and _can_be_constant(network, place, held):
                taps[held.name] = tap(network, place, held.name)
    batches = iter(batches)
    first = next(batches)
    unchanged = _output(network, first)
    for batch in batches:
        _output(network, batch)
    changes: dict[str, float] = {}
    for name, watched in taps.items():
        if watched.images and not watched.varies_in_space:
            watched.held_at = watched.mean
            changes[name] = relative_change(unchanged, _output(network, first))
            watched.held_at = None
    return [_decided(place, taps, changes, tolerance) for place in places]


def as_examples(model: nn.Module, batches: Iterable[Any]) -> tuple[Example, Iterator[Example]]:
    """The inputs of the first batch, and those of all batches (the first once more)."""
    examples = (_as_example(model, batch) for batch in batches)
    first = next(examples, None)
    if first is None:
        raise InputError("constants= gave no batch. Expected an iterable of input batches.")
    return first, chain((first,), examples)


def relative_change(before: Sequence[Tensor], after: Sequence[Tensor]) -> float:
    """The length of the change relative to the length of the output."""
    change = sum(float((a - b).square().sum()) for a, b in zip(before, after, strict=True))
    size = sum(float(a.square().sum()) for a in before)
    return (change / max(size, 1e-300)) ** 0.5


def _can_be_constant(network: nn.Module, place: Place, held: Held) -> bool:
    """Not where a module runs several times, nor where a gate hands a memory to the next."""
    memory = isinstance(network.get_submodule(held.name), StageAttachment)
    return not memory and not place.site.refusal


def _as_example(network: nn.Module, batch: Any) -> Example:
    """The inputs of a batch: a tensor, the first of a tuple (inputs, targets), or a dict."""
    inputs = batch[0] if isinstance(batch, (tuple, list)) else batch
    if not isinstance(inputs, (Tensor, Mapping)):
        raise InputError(
            f"Expected batches that are tensors, (inputs, targets) or dicts of inputs but got "
            f"{type(batch).__name__}."
        )
    parameter = next(p for p in network.parameters() if p.is_floating_point())

    def moved(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        leaf = leaf.to(parameter.device)
        return leaf.to(parameter.dtype) if leaf.is_floating_point() else leaf

    return tree_map(moved, inputs)


def _output(network: nn.Module, example: Example) -> list[Tensor]:
    arguments, keywords = as_call(network, example)
    with evaluating(network):
        output = network(*arguments, **keywords)
    return [
        leaf.double()
        for leaf in tree_flatten(output)[0]
        if isinstance(leaf, Tensor) and leaf.is_floating_point()
    ]


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
