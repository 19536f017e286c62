"""The places of a network where gates act, and the gates there."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from attnlab.attention import LearnedVectorGate
from attnlab.insert import Attachment, Site, attachments
from attnlab.insert._attachment import BranchAttachment

DEPENDS_ON_INPUT = "its gate depends on the input"


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
    spread: float | None = None
    """Of a gate that was replaced by its mean: how much it varied over the data, relative."""
    predicted_change: float | None = None
    """Of such a gate: the relative change of the output when it alone is replaced."""

    @property
    def key(self) -> str:
        """Where it acts: a module, or one addition in a module's forward."""
        step = self.site.step
        if self.site.host == "addition":
            assert step is not None
            axes = len(self.site.shape)
            return f"{self.site.module}+{axes}x{self.site.channels}+{step.addition}"
        return self.site.module

    @property
    def name(self) -> str:
        """For messages and receipts."""
        if self.site.host == "output":
            return self.site.module
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
    places: dict[str, Place] = {}
    for name, attachment in attachments(model):
        constant = constant_of(attachment)
        held = Held(name, constant, "" if constant is not None else DEPENDS_ON_INPUT)
        place = Place(attachment.site, (held,))
        if place.key in places:
            place = replace(places[place.key], gates=(*places[place.key].gates, held))
        places[place.key] = place
    return list(places.values())


def constant_of(attachment: Attachment) -> Tensor | None:
    """The attachment's gate, computed in float64, if it is the same for every input."""
    if not isinstance(attachment, BranchAttachment):
        return None
    if not isinstance(attachment.gate, LearnedVectorGate):
        return None
    with torch.no_grad():
        constant = copy.deepcopy(attachment.gate).cpu().double().constant()
        if attachment.scale is not None:
            constant = constant * attachment.scale.cpu().double()
    return constant
