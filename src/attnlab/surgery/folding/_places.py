"""The places of a network where gates act, and the gates there."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from attnlab._errors import FoldError
from attnlab.residuals import GateSource, Observer, SeenGate, Site, StepKey, Watchable
from attnlab.residuals.example import Example, Run, call, evaluating
from attnlab.residuals.sites import named_sites
from attnlab.residuals.watching import watching
from attnlab.surgery.folding._own_constants import Scale, scales
from attnlab.surgery.folding._own_gates import ComputedGate, own_gates
from attnlab.surgery.insertion import attachments

_MOST = 1e-4  # relative: rounding of float32, and far less than anything that is added


class _Products(Observer):
    def __init__(self, gates: Sequence[GateSource]) -> None:
        self.names = {gate.name for gate in gates}
        self.values: dict[str, Tensor] = {}
        self.inputs: dict[str, Tensor] = {}
        self.wrong: set[str] = set()

    def gate_seen(self, seen: SeenGate) -> None:
        if seen.gate.name in self.names:
            self.values[seen.gate.name] = seen.by_channel()

    def begun(self, name: str) -> Any:
        def hook(_module: nn.Module, arguments: tuple[Any, ...]) -> None:
            self.inputs[name] = arguments[0].detach().clone()

        return hook

    def ended(self, name: str, axis: int) -> Any:
        def hook(_module: nn.Module, _arguments: Any, output: Any) -> None:
            branch, value = self.inputs.pop(name), self.values.pop(name, None)
            if value is None or not isinstance(output, Tensor) or output.shape != branch.shape:
                self.wrong.add(name)
                return
            before, after = (x.detach().movedim(axis, 1).flatten(2) for x in (branch, output))
            if value.shape[2] not in (1, before.shape[2]) or not _is_product(before, value, after):
                self.wrong.add(name)

        return hook


def _is_product(before: Tensor, value: Tensor, after: Tensor) -> bool:
    try:
        error = (before * value - after).abs().max()
    except RuntimeError:  # other channels, or other rows
        return False
    return bool(error <= _MOST * after.abs().max().clamp_min(torch.finfo(after.dtype).tiny))


def not_products(model: nn.Module, found: Watchable, example: Example | None) -> dict[str, str]:
    """Return those of the network's own gates whose module does not return its input times its
    gate; by name, with what to say."""
    own = [gate for gate in found.gates if gate.kind == "own"]
    produced = {name: node for node in found.run.graph.nodes for name, _ in node.produced_by}
    observer = _Products(own)
    with ExitStack() as hooks:
        for gate in own:
            if gate.name not in produced:
                continue
            module, axis = model.get_submodule(gate.name), produced[gate.name].channels_on
            hooks.enter_context(module.register_forward_pre_hook(observer.begun(gate.name)))
            hooks.enter_context(module.register_forward_hook(observer.ended(gate.name, axis)))
        hooks.enter_context(watching(model, observer, found=found))
        with evaluating(model):
            call(model, example)
    return {
        gate.name: f"{type(gate.module).__name__} does not return its input times what its "
        f"{gate.submodule!r} returns"
        for gate in own
        if gate.name in observer.wrong
    }


DEPENDS_ON_INPUT = "its gate depends on the input"

PlaceKey = str | StepKey
_INPUT = " (input)"


@dataclass(frozen=True)
class Held:
    """One gate at a place: a module of the network, and its constant if it has one."""

    name: str
    constant: Tensor | None
    """Float64, one value per channel; None where the gate stays."""
    reason: str = ""
    """Why it stays."""


@dataclass(frozen=True)
class Place:
    """A site and the gates that act there, in their order."""

    site: Site
    gates: tuple[Held, ...]
    own: bool = False
    """Whether the gate is an attention module of the network itself, not an inserted one."""
    gate_of: tuple[str, str] | None = None
    """Of such a module: its class, and the submodule that returns the gate."""
    spread: float | None = None
    """Of a gate that was replaced by its mean: how much it varied over the data, relative."""
    predicted_change: float | None = None
    """Of such a gate: the relative change of the output when it alone is replaced."""
    scale: Scale | None = None
    """Of a constant that the network itself multiplies by, where it does."""
    own_gate: ComputedGate | None = None
    """Of a gate that the network computes and multiplies by itself."""

    @property
    def key(self) -> PlaceKey:
        """Where it acts: at a module, or at the addition of a step."""
        if self.site.host == "input":
            return f"{self.site.module}{_INPUT}"
        if self.site.host == "output":
            return self.site.module
        assert self.site.step is not None
        return self.site.step.key

    @property
    def seen_at(self) -> PlaceKey:
        """Where the network shows what was gated: a product inside of a module, or what a module is
        given, is not shown; what its step adds is."""
        if self.own_gate is None and self.site.host != "input":
            return self.key
        assert self.site.step is not None
        return self.site.step.key

    @property
    def name(self) -> str:
        """The name that messages and receipts use."""
        by_itself = self.scale or self.own_gate
        if by_itself is not None:
            return f"{by_itself.name} at {self.site.label}"
        if self.site.host != "addition":
            return str(self.key)
        return f"{self.site.label} in {self.site.module or 'the network'}"

    @property
    def folded(self) -> tuple[Held, ...]:
        """The constant gates before the first that stays; what follows that one cannot pass it."""
        first = next((i for i, held in enumerate(self.gates) if held.constant is None), None)
        return self.gates[:first]

    @property
    def kept(self) -> tuple[Held, ...]:
        return self.gates[len(self.folded) :]

    def vector(self) -> Tensor:
        """The product of the folded gates."""
        vector = torch.ones(self.site.channels, dtype=torch.float64)
        for held in self.folded:
            assert held.constant is not None
            vector = vector * held.constant
        return vector

    @property
    def is_module(self) -> bool:
        """Whether the gate is a module of the network itself, which goes with it."""
        return self.own and self.scale is None and self.own_gate is None

    def leaves(self, network: nn.Module) -> bool:
        """Return whether a module of `network` goes with the gate."""
        return self.is_module or (self.scale is not None and self.scale.leaves(network))

    def keeping(self, reason: str) -> Place:
        """This place with none of its gates folded."""
        gates = tuple(replace(held, constant=None, reason=reason) for held in self.gates)
        return replace(self, gates=gates)

    @property
    def reason(self) -> str:
        """Why its first gate that stays stays."""
        return next((held.reason for held in self.gates if held.constant is None), "")


def inserted_places(model: nn.Module) -> list[Place]:
    """The places of all attachments, with the constants of the gates that have one."""
    places: dict[PlaceKey, Place] = {}
    for name, attachment in attachments(model):
        constant = attachment.constant()
        held = Held(name, constant, "" if constant is not None else attachment.stays_because)
        place = Place(_present(attachment.site, name), (held,))
        if place.key in places:
            place = replace(places[place.key], gates=(*places[place.key].gates, held))
        places[place.key] = place
    return list(places.values())


def _present(site: Site, attachment: str) -> Site:
    """The site with the names that its modules have now: the network may have become a part of
    another since the gate was inserted."""
    home = attachment.rpartition(".")[0]
    if home == site.home:
        return site
    if site.home and not home.endswith(f".{site.home}"):
        raise FoldError(
            f"The gate at {site.home!r} was inserted into a network that has other names now: it "
            f"is found in {home!r}. Fold that network before it is taken apart."
        )
    outside = home.removesuffix(site.home).removesuffix(".")

    def moved(name: str) -> str:
        return f"{outside}.{name}" if name else outside

    step = site.step
    if step is not None:
        key = replace(step.key, owner=moved(step.key.owner))
        modules = tuple(map(moved, step.branch_modules))
        step = replace(step, name=moved(step.name), key=key, branch_modules=modules)
    site = replace(site, reader=moved(site.reader)) if site.reader else site
    return replace(site, name=moved(site.name), module=moved(site.module), home=home, step=step)


def scale_places(model: nn.Module, run: Run) -> list[Place]:
    """A place for every constant of its own that `model` multiplies the end of a branch by."""
    return [
        Place(site, (Held(scale.name, values),), own=True, scale=scale)
        for scale, site, values in scales(model, run)
    ]


def has_constant_gates(model: nn.Module) -> bool:
    """Return whether some gate that attnlab inserted is the same for every input, so that it may
    fold."""
    return any(place.folded for place in inserted_places(model))


def own_places(model: nn.Module, found: Watchable, example: Example | None) -> list[Place]:
    """A place for every attention module of `model` itself whose gate can be watched, and for every
    gate that it multiplies by in its steps."""
    gates = {
        gate.name: (type(gate.module).__name__, gate.submodule)
        for gate in found.gates
        if gate.kind == "own"
    }
    refused = not_products(model, found, example)
    places = []
    for site in named_sites(model, found.run.graph, list(gates), found.steps):
        if not site.refusal and site.module in refused:
            site = replace(site, refusal=refused[site.module])
        reason = site.refusal or DEPENDS_ON_INPUT
        held = Held(site.module, None, reason)
        places.append(Place(site, (held,), own=True, gate_of=gates[site.module]))
    for own_gate, site in own_gates(found):
        held = Held(own_gate.name, None, site.refusal or DEPENDS_ON_INPUT)
        places.append(Place(site, (held,), own=True, own_gate=own_gate))
    return places
