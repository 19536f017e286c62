"""The gates of a network: ours, its own, and those inside a norm."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from torch import nn

from attnlab.gates import InstanceEnhancementBatchNorm
from attnlab.residuals.attachment import Attachment
from attnlab.residuals.form import Multiplier, Role
from attnlab.residuals.graph import Graph, Node
from attnlab.residuals.library import GateAt, OwnGates, gate_at
from attnlab.residuals.listing import list_modules
from attnlab.residuals.site import Position, position_of
from attnlab.residuals.steps import Step
from attnlab.residuals.where import lies_in

GateKind = Literal["inserted", "own", "norm", "product"]


_POSITIONS: dict[Role, Position] = {
    "size": "end",
    "write": "end",
    "inside": "inside",
    "read": "inside",
    "carry": "elsewhere",
}


@dataclass(frozen=True)
class GateSource:
    """A gate of a network."""

    name: str
    """Its module in the network: an attachment of ours, the network's own attention, or a norm."""
    kind: GateKind
    """`inserted` by attnlab, the network's `own` (squeeze-and-excitation of timm or torchvision),
    in a `norm` (IEBN), or what the network multiplies by in a `product` of its own."""
    module: nn.Module = field(repr=False)
    """What computes its value."""
    channel_axis: int
    """The axis of its value that holds the channels."""
    label: str
    """The label of the step on whose branch it lies; its site's, or its name, if there is none."""
    calls: Mapping[int, tuple[Step | None, Position]]
    """For each of its calls in one forward, from 0: the step on whose branch it acts, and where."""
    submodule: str = ""
    """What of the module returns its value; of the network's own only."""
    multipliers: tuple[Multiplier, ...] = ()
    """Of a product: what multiplies, and where; one for each of its calls."""


def find_gates(
    model: nn.Module, graph: Graph, steps: Sequence[Step], own: OwnGates | None = None
) -> tuple[GateSource, ...]:
    """The gates of `model`, whose run and steps these are: ours, then norms, then its own, of
    classes that are known or named in `own`."""
    made: dict[str, dict[int, Node]] = {}
    for node in graph.nodes:
        for name, call in node.produced_by:
            made.setdefault(name, {})[call] = node
    found: dict[GateKind, list[GateSource]] = {"inserted": [], "norm": [], "own": []}
    attachment = ""
    for name, module in list_modules(model):
        at = gate_at(module, own)
        kind = _kind(module, at)
        if kind is None or (attachment and name.startswith(f"{attachment}.")):
            continue
        nodes = made.get(name, {})
        calls = {c: position_of(graph, node, steps) for c, node in nodes.items()}
        axis = next((node.channels_on for node in nodes.values()), 1)
        label, submodule = name, ""
        if kind == "own" and at is not None:
            submodule, axis = at
        if isinstance(module, Attachment):
            attachment, axis = name, module.site.channel_axis
            label = name if module.site.step else module.site.label
            module = module.gate_module
        label = next((step.label for step, _ in calls.values() if step is not None), label)
        found[kind].append(GateSource(name, kind, module, axis, label, calls, submodule))
    known = tuple(source for sources in found.values() for source in sources)
    return (*known, *_products(model, steps, [source.name for source in known]))


def _products(
    model: nn.Module, steps: Sequence[Step], known: Sequence[str]
) -> Iterator[GateSource]:
    """What the network itself multiplies by in its steps, but for the gates that are `known`."""
    named: dict[str, list[tuple[Step, Multiplier]]] = defaultdict(list)
    for step in steps:
        for each in step.form.gates:
            assert each.key is not None
            if not any(
                lies_in(place, name) for place in (each.key.owner, each.name) for name in known
            ):
                named[f"{each.name}:{each.role}"].append((step, each))
    for name, found in named.items():
        step, first = found[0]
        assert first.key is not None
        yield GateSource(
            name,
            "product",
            model.get_submodule(first.key.owner),
            -1,
            step.label,
            {number: (step, _POSITIONS[each.role]) for number, (step, each) in enumerate(found)},
            multipliers=tuple(each for _, each in found),
        )


def has_gates(model: nn.Module) -> bool:
    """Return whether `model` has any gate that `find_gates` would find; nothing is run."""
    return any(_kind(module, gate_at(module, None)) is not None for module in model.modules())


def _kind(module: nn.Module, at: GateAt | None) -> GateKind | None:
    if isinstance(module, Attachment):
        return "inserted"
    if isinstance(module, InstanceEnhancementBatchNorm):
        return "norm"
    return None if at is None else "own"
