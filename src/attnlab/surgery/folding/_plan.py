"""Decide for every place which parameters take its gates, from one recorded run of the network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from math import prod

import torch
from torch import Tensor, nn

from attnlab.residuals.form import squashed
from attnlab.residuals.graph import Node
from attnlab.residuals.listing import list_modules, named_tensors, registered
from attnlab.surgery.folding._flow import Flow
from attnlab.surgery.folding._forward import walk_on
from attnlab.surgery.folding._ids import NOT_READ, Refusal, along
from attnlab.surgery.folding._own_constants import check_scaling_number, together
from attnlab.surgery.folding._own_gates import ComputedGate
from attnlab.surgery.folding._places import Place, PlaceKey
from attnlab.surgery.folding._walk import Demand, Scaling, Undo, walk_back


def undoing(flow: Flow, keep: int, foldable: Set[str], barriers: Set[int]) -> Undo:
    """What finds the parameters that must be divided by the gates, so that a reader computes from
    the scaled tensor what it did from the plain one."""

    def undo(source: int, ids: Tensor, reader: int) -> Scaling:
        scaled = torch.where(ids == NOT_READ, keep, ids)
        demands, not_negative = walk_on(flow, source, scaled, keep, barriers, reader)
        found = walk_back(flow, demands, keep, foldable, barriers)
        return replace(found, not_negative=found.not_negative | not_negative)

    return undo


_BUFFERS = frozenset(("weight", "bias", "running_mean", "running_var"))


def frozen_scales(modules: Iterable[tuple[str, nn.Module]]) -> Iterator[str]:
    """The names of the buffers that scale and shift, of norms that are frozen."""
    for name, module in modules:
        if module._parameters or not module._buffers:
            continue
        if set(module._buffers) - module._non_persistent_buffers_set >= _BUFFERS:
            for buffer in ("weight", "bias"):
                if module._buffers[buffer] is not None:
                    yield f"{name}.{buffer}" if name else buffer


Plan = dict[PlaceKey, Scaling | Refusal]
"""By the places' keys."""


def plan(network: nn.Module, flow: Flow, places: Sequence[Place]) -> Plan:
    """Return what takes the folded gates of each of `places`, or why nothing can.

    `flow` is a run of `network` in which every gate is one node, `whole`. Gates that stay are
    barriers: no other gate may pass them.
    """
    gates = {node.owner: node for node in reversed(flow.nodes) if node.operation == "whole"}
    acting = {place.key: _acting(place, gates, flow) for place in places}
    barriers = {
        gates[held.name].index for place in places for held in place.kept if held.name in gates
    }
    # A scale that goes cannot take another.
    scaled = Counter(place.scale.name for place in places if place.scale is not None)
    going = {place.scale.name for place in places if place.scale is not None and place.folded}
    foldable = foldable_parameters(network) - going
    tensors = named_tensors(network)
    decided: Plan = {}
    for place in places:
        if not place.folded:
            continue
        try:
            if place.scale is not None:
                check_scaling_number(network, place.scale, scaled[place.scale.name])
            found = _decide(flow, place, acting[place.key], foldable, barriers)
            if place.own_gate is not None:
                found = replace(found, silenced=_silencing(flow, place.own_gate, foldable))
            _check_inverse(place, found, tensors)
            decided[place.key] = found
        except Refusal as reason:
            decided[place.key] = reason
    return _as_one(network, places, decided)


def _as_one(network: nn.Module, places: Sequence[Place], decided: Plan) -> Plan:
    """Where several steps are scaled by one number, all of them fold or none does."""
    groups = {p.key: together(network, p.scale) for p in places if p.scale is not None}
    stays = {
        groups[place.key]: decided.get(place.key, Refusal(place.reason))
        for place in places
        if place.key in groups and not isinstance(decided.get(place.key), Scaling)
    }
    refused = {
        key: Refusal(f"another step that it scales stays: {stays[group]}")
        for key, group in groups.items()
        if group in stays and isinstance(decided.get(key), Scaling)
    }
    return {**decided, **refused}


def _silencing(flow: Flow, gate: ComputedGate, foldable: Set[str]) -> dict[str, Tensor]:
    """What must be zero so that the logits of `gate` are: parameters, and which elements."""
    product = gate.product(flow.graph)
    assert product is not None
    made = squashed(flow.graph, gate.operand(product))
    assert made is not None
    reader, index = product.index, gate.operand(product)
    while reader != made.node:
        if flow.readers[index] != [reader]:
            raise Refusal("its gate is read elsewhere as well, where it must stay what it is")
        reader, index = index, flow.nodes[index].data_inputs[0]
    (logits,) = flow.nodes[made.node].data_inputs
    zeros = Demand(made.node, logits, torch.zeros(flow.nodes[logits].shape, dtype=torch.long))
    try:
        found = walk_back(flow, [zeros], 1, foldable)
    except Refusal as reason:
        raise Refusal(f"its logits cannot be made zero: {reason}") from None
    return {name: ids == 0 for name, ids in found.parameters.items()}


def _acting(place: Place, gates: Mapping[str, Node], flow: Flow) -> tuple[int, int, int] | None:
    """What the first gate reads, and the nodes of the first and of the last, by number; None if the
    run shows no such."""
    if place.own_gate is not None:
        node = place.own_gate.product(flow.graph)
        return None if node is None else (place.own_gate.source(node), node.index, node.index)
    if place.scale is not None:
        return place.scale.source, place.scale.node, place.scale.node
    found = [gates[held.name] for held in place.gates if held.name in gates]
    if len(found) < len(place.gates):
        return None
    return found[0].inputs[0], found[0].index, found[-1].index


def foldable_parameters(network: nn.Module) -> frozenset[str]:
    """The parameters, and the scales of frozen norms, that belong to one module only and share
    their memory with no other."""
    modules = list_modules(network)
    owners: Counter[int] = Counter()
    for _, module in modules:
        own = (*module._parameters.values(), *module._buffers.values())
        owners.update({id(tensor) for tensor in own if tensor is not None})
    parameters, buffers = (registered(modules, kind) for kind in ("_parameters", "_buffers"))
    frozen = set(frozen_scales(modules))
    named = [*parameters, *(each for each in buffers if each[0] in frozen)]
    shared = _in_shared_memory(tensor for _, tensor in (*parameters, *buffers))
    return frozenset(
        name for name, each in named if owners[id(each)] == 1 and id(each) not in shared
    )


def _in_shared_memory(tensors: Iterable[Tensor]) -> set[int]:
    """The ids of those whose memory overlaps another's, as `a.weight.data = b.weight.data` makes
    it: a copy of the network has memory for each, `inplace=True` would scale both."""
    memory = sorted(
        (each.data_ptr(), each.data_ptr() + each.nbytes, id(each))
        for each in tensors
        if type(each) in (Tensor, nn.Parameter) and each.numel()
    )
    found: set[int] = set()
    end, reaches = 0, 0
    for first, last, each in memory:
        if first < end:
            found |= {reaches, each}
        if last > end:
            end, reaches = last, each
    return found


def _decide(
    flow: Flow,
    place: Place,
    acting: tuple[int, int, int] | None,
    foldable: frozenset[str],
    barriers: set[int],
) -> Scaling:
    if acting is None:
        raise Refusal("the example does not reach it; pass one that does: example=...")
    source, reader, last = acting
    shape = flow.nodes[source].shape
    keep = place.site.channels
    by_itself = place.scale or place.own_gate
    if by_itself is None and shape[place.site.channel_axis] != keep:
        raise Refusal(f"its gate has {keep} channels and meets a tensor of shape {shape}")
    if not prod(shape):
        raise Refusal(
            f"the example reaches it with an empty tensor, {shape}; pass another: example=..."
        )
    ids = (
        along(torch.arange(keep), place.site.channel_axis, shape)
        if by_itself is None
        else by_itself.ids(flow.nodes[last].shape)
    )
    if place.own_gate is not None and place.site.position != "end":
        # After it: what attention mixes is shared between heads, and its values may be kept.
        with suppress(Refusal):
            return _decide_forward(flow, place, last, ids, foldable, barriers)
    asked = [Demand(reader, source, ids)]
    try:
        found = walk_back(flow, asked, keep, foldable, barriers)
        check_sign(place.vector(), found.not_negative)
        return found
    except Refusal as refusal:
        reason = refusal
    if place.site.position != "end":  # after a step's branch comes the addition
        try:
            return _decide_forward(flow, place, last, ids, foldable, barriers)
        except Refusal as other:
            reason = Refusal(f"{reason}; and after it, {other}", reason.norm)
    with suppress(Refusal):
        undo = undoing(flow, keep, foldable, barriers)
        found = walk_back(flow, asked, keep, foldable, barriers, undo)
        check_sign(place.vector(), found.not_negative)
        return found
    raise reason


def _decide_forward(
    flow: Flow,
    place: Place,
    last: int,
    ids: Tensor,
    foldable: frozenset[str],
    barriers: set[int],
) -> Scaling:
    keep = place.site.channels
    if place.kept:
        raise Refusal("a gate that depends on the input follows")
    demands, not_negative = walk_on(flow, last, ids, keep, barriers)
    found = walk_back(flow, demands, keep, foldable, barriers)
    check_sign(place.vector(), not_negative)
    readers = dict.fromkeys(flow.nodes[demand.reader].owner for demand in demands)
    return replace(found, behind=tuple(readers))


def check_sign(vector: Tensor, not_negative: frozenset[int]) -> None:
    """Refuse gates of this `vector` that are negative where only others pass."""
    gates = vector[sorted(not_negative)]
    if bool((gates < 0).any()):
        raise Refusal(
            f"{int((gates < 0).sum())} of its gates are negative, and there is an operation such "
            f"as relu in between, which lets only positive scalings through"
        )


def _check_inverse(place: Place, found: Scaling, tensors: Mapping[str, Tensor]) -> None:
    """Refuse gates whose inverse is too large for the precision of what must take it."""
    for name, ids in found.inverse.items():
        tensor = tensors[name]
        divided = tensor.detach().cpu().double() * values(place).reciprocal()[ids]
        if not bool(divided.to(tensor.dtype).isfinite().all()):
            raise Refusal(
                f"{name!r} would have to be divided by gates as small as "
                f"{float(place.vector().abs().min()):.0e}, which {tensor.dtype} does not hold"
            )


def values(place: Place) -> Tensor:
    """Return what each id stands for. Of a gate of the network's own, relative to what it returns
    when its logits are zero."""
    rest = 1.0 if place.own_gate is None else place.own_gate.at_zero
    return by_ids(place.vector() / rest)


def by_ids(vector: Tensor) -> Tensor:
    """Return what each id stands for: the gates, and 1 for the ids `keep` (C) and NOT_READ (-1)."""
    return torch.cat((vector, torch.ones(2, dtype=torch.float64)))


def factors(places: Sequence[Place], decided: Plan) -> dict[str, Tensor]:
    """Return what each parameter is multiplied by, in float64."""
    product: dict[str, Tensor] = {}
    for place in places:
        scaling = decided.get(place.key)
        if not isinstance(scaling, Scaling):
            continue
        gates = values(place)
        factor_of = [(name, gates[ids]) for name, ids in scaling.parameters.items()]
        factor_of += [(name, gates.reciprocal()[ids]) for name, ids in scaling.inverse.items()]
        factor_of += [(name, 1.0 - zero.double()) for name, zero in scaling.silenced.items()]
        for name, factor in factor_of:
            product[name] = product[name] * factor if name in product else factor
    return product


def offsets(decided: Plan) -> dict[str, float]:
    """The numbers that the network adds to parameters before these scale anything."""
    found: dict[str, float] = {}
    for scaling in decided.values():
        if isinstance(scaling, Scaling):
            found |= scaling.offsets
    return found


@torch.no_grad()
def multiply(
    network: nn.Module, product: Mapping[str, Tensor], offsets: Mapping[str, float]
) -> None:
    """Multiply the tensors of these names, with their offsets, in float64 and round once."""
    tensors = named_tensors(network)
    for name, factor in product.items():
        tensor, offset = tensors[name], offsets.get(name, 0.0)
        value = tensor.detach().cpu().double()
        tensor.copy_((value + offset) * factor - offset if offset else value * factor)
