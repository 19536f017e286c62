"""Where a gate acts: the gate beside its host, and the multiplication it never does itself."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from attnlab.attention import BranchGate, Gate, LearnedVectorGate, StageGate, StepGate
from attnlab.insert._layout import gate_to_layout, to_channel_first
from attnlab.insert.site import Site
from attnlab.record.recorder import RecordedWhole


class Attachment(RecordedWhole, ABC):
    """A gate at a site of a host network. Calling it returns `branch ⊗ step size`.

    `scale` is there only after `start="identity"`: the reciprocal of the gate's first value. It is
    a buffer, so that a checkpoint cannot be loaded into a network that would scale differently.
    """

    scale: Tensor | None

    def __init__(self, site: Site, scale: float | None = None) -> None:
        super().__init__()
        self.site = site
        if scale is not None:
            self.register_buffer("scale", torch.tensor(scale))
        else:
            self.scale = None

    @property
    @abstractmethod
    def gate_module(self) -> Gate:
        """The gate, which attachments of one stage may share."""

    @abstractmethod
    def step_size(self, branch: Tensor, shortcut: Tensor | None) -> Tensor:
        """What the branch is multiplied by, broadcastable to it."""

    def constant(self) -> Tensor | None:
        """The step size in float64, one value per channel, if it is the same for every input."""
        if not isinstance(self.gate_module, LearnedVectorGate):
            return None
        with torch.no_grad():
            constant = copy.deepcopy(self.gate_module).cpu().double().constant()
            return constant if self.scale is None else constant * self.scale.cpu().double()

    def forward(self, branch: Tensor, shortcut: Tensor | None = None) -> Tensor:
        return branch * self.step_size(branch, shortcut)

    def _placed(self, gate: Tensor, branch: Tensor) -> Tensor:
        if self.scale is not None:
            gate = gate * self.scale
        return gate_to_layout(gate, branch, self.site.channel_axis)

    def _seen(self, features: Tensor) -> Tensor:
        return to_channel_first(features, self.site.channel_axis)

    def extra_repr(self) -> str:
        return f"behind {self.site.module!r}" if self.site.host == "output" else "at the addition"


class BranchAttachment(Attachment):
    """A gate that reads the branch."""

    def __init__(self, gate: BranchGate, site: Site, scale: float | None = None) -> None:
        super().__init__(site, scale)
        self.gate = gate

    @property
    def gate_module(self) -> Gate:
        return self.gate

    def step_size(self, branch: Tensor, shortcut: Tensor | None) -> Tensor:
        del shortcut
        return self._placed(self.gate(self._seen(branch)), branch)


class StepAttachment(Attachment):
    """A gate that reads both ends of the step."""

    def __init__(self, gate: StepGate, site: Site, scale: float | None = None) -> None:
        super().__init__(site, scale)
        self.gate = gate

    @property
    def gate_module(self) -> Gate:
        return self.gate

    def step_size(self, branch: Tensor, shortcut: Tensor | None) -> Tensor:
        assert shortcut is not None, "a step gate is only ever attached to an addition"
        return self._placed(self.gate(self._seen(shortcut), self._seen(branch)), branch)


class StageMemory:
    """What the last block of a stage left for the next one, during one forward run."""

    def __init__(self) -> None:
        self.value: tuple[Tensor, ...] | None = None


class StageAttachment(Attachment):
    """A gate shared by the blocks of a stage, which hands a memory from block to block.

    The first attachment of the stage owns the gate; the others refer to it, so that its parameters
    appear once. The memory lives from the first block of the stage to the last of one forward run;
    so re-computing single blocks (activation checkpointing) is not possible with such a gate.
    """

    def __init__(
        self,
        gate: StageGate,
        memory: StageMemory,
        site: Site,
        *,
        first: bool,
        last: bool,
        scale: float | None = None,
    ) -> None:
        super().__init__(site, scale)
        if first:
            self.gate = gate
        self._shared = (gate,)  # in a tuple, so that it is not registered once more
        self._memory = memory
        self._first, self._last = first, last

    @property
    def gate_module(self) -> Gate:
        return self._shared[0]

    def step_size(self, branch: Tensor, shortcut: Tensor | None) -> Tensor:
        del shortcut
        before = None if self._first else self._memory.value
        gate, after = self._shared[0](self._seen(branch), before)
        self._memory.value = None if self._last else after
        return self._placed(gate, branch)
