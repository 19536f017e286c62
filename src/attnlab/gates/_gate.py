"""What a gate is.

A residual network takes steps, `x_{t+1} = x_t + gate ⊗ f(x_t)`. A gate computes the attention
value; it never multiplies. The place where it was inserted does that.

Three forms, told apart by what they read:

* `BranchGate` reads the branch `f(x_t)`: SE, CBAM, ECA, ...
* `StepGate` reads both ends of the step, `x_t` and `f(x_t)`: StepNet's adaptor. A `CarryGate` also
  says what the state is multiplied by: `x_{t+1} = carry ⊗ x_t + gate ⊗ f(x_t)`.
* `StageGate` also reads what the previous block of its stage handed on: DIA.

All see channel-first maps of shape (batch, channels, height, width), those that say so in `ranks`
also sequences (batch, channels, length) and volumes (batch, channels, depth, height, width), and
return a value of the branch's dtype that broadcasts to them. Other layouts (tokens, channels last)
are the inserting site's business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal

import torch
from torch import Tensor, nn

from attnlab._errors import InputError, OptionError

Activation = Callable[[Tensor], Tensor]
"""An elementwise function of a tensor, σ for one."""

ANY_RANK: Final = (1, 2, 3)
"""The `ranks` of a gate to which it is all the same how its pixels are arranged in space."""

_SHAPES: Final = {1: "length", 2: "height, width", 3: "depth, height, width"}


class Gate(nn.Module, ABC):
    """Base of all gates. Build with the number of channels first: `Gate(channels, ...)`."""

    on_vector: ClassVar[bool] = False
    """Whether a learned vector ψ of shape (1, C, 1, 1) alone can determine the gate (ASR)."""

    ranks: tuple[int, ...] = (2,)
    """How many spatial axes its maps may have: 1 sequences and tokens, 2 images, 3 volumes."""

    at_heads: ClassVar[bool] = False
    """Whether it belongs in front of the output projection of attention, if there is one."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        if channels < 1:
            raise OptionError(f"Expected channels to be at least 1 but got {channels}.")
        self.channels = channels

    @abstractmethod
    def start_constant(self) -> float:
        """Re-initialise so that the gate is one constant for every input and channel; return it.

        The constant must be away from 0 and its gradient must reach the gate. Insertion with
        `start="identity"` multiplies by the reciprocal, so that the network is unchanged at first.
        """

    def check_input(self, features: Tensor) -> None:
        """Raise `InputError` unless `features` is a map of a rank and of the channels it takes.

        Without it a gate that only multiplies and adds would broadcast a wrong input silently.
        """
        if features.dim() - 2 in self.ranks and features.shape[1] == self.channels:
            return
        rank, name = features.dim() - 2, type(self).__name__
        if rank not in self.ranks:
            shapes = " or ".join(f"(batch, {self.channels}, {_SHAPES[r]})" for r in self.ranks)
            remedy = (
                "Choose a gate of this rank, for example 'se'; `attnlab modules` shows the ranks."
                if rank in ANY_RANK
                else "Give it a map with a batch, channels, and at least one spatial axis."
            )
            raise InputError(
                f"{name} takes maps of shape {shapes} but got {tuple(features.shape)}. {remedy}"
            )
        raise InputError(
            f"{name} was built for maps of shape (batch, {self.channels}, {_SHAPES[rank]}) but got "
            f"{tuple(features.shape)}. Build it with the number of channels of the branch, and "
            "move channels to the second axis."
        )

    def extra_repr(self) -> str:
        return f"{self.channels}"


class BranchGate(Gate):
    """A gate that reads the branch alone."""

    @abstractmethod
    def forward(self, branch: Tensor) -> Tensor:
        """The attention value, broadcastable to `branch` (B, C, ...)."""


class VectorGate(BranchGate):
    """A branch gate that one value per channel determines, so that ASR can learn that value."""

    on_vector: ClassVar[bool] = True

    squash: Activation = staticmethod(torch.sigmoid)
    """The last function of the gate, σ in most."""

    @abstractmethod
    def of_vector(self, vector: Tensor, activation: Activation) -> Tensor:
        """The gate (B, C) of maps that are constantly `vector` (B, C), `activation` its last step.

        `activation` is `squash` unless ASR was told to take another.
        """


class ConstantGate(BranchGate):
    """A branch gate that is the same for every input, so that it is causal and can be folded."""

    @abstractmethod
    def constant(self) -> Tensor:
        """The gate of every input, one value per channel."""

    def forward(self, branch: Tensor) -> Tensor:
        self.check_input(branch)
        gate = self.constant().to(branch.dtype)
        return gate.view(1, -1, *(1,) * (branch.dim() - 2))


class StepGate(Gate):
    """A gate that reads both ends of the step."""

    @abstractmethod
    def forward(self, shortcut: Tensor, branch: Tensor) -> Tensor:
        """The attention value of the step from `shortcut` to `shortcut + branch`."""


class CarryGate(StepGate):
    """A step gate that also scales the state: `x_{t+1} = carry ⊗ x_t + gate ⊗ f(x_t)`.

    What the state is multiplied by is the same for every input, and 1 after `start_constant`.
    """

    @abstractmethod
    def carry(self) -> Tensor:
        """Return what the state is multiplied by, one value per channel."""


class StageGate(Gate):
    """A gate shared by all blocks of a stage, which hands a memory from block to block."""

    @abstractmethod
    def forward(
        self, branch: Tensor, memory: tuple[Tensor, ...] | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The attention value and the memory for the next block; `memory` is None at the first."""


Form = Literal["branch", "step", "stage", "norm"]


@dataclass(frozen=True)
class Reference:
    """A paper, as a bibliography wants it."""

    kind: Literal["inproceedings", "article", "misc"]
    key: str
    authors: str
    title: str
    venue: str
    """The conference or the journal."""
    year: int

    def bibtex(self) -> str:
        """The entry for a BibTeX file."""
        fields = {"inproceedings": "booktitle", "article": "journal", "misc": "howpublished"}
        where = fields[self.kind]
        # Two pairs of braces keep the capitals of the title.
        return (
            f"@{self.kind}{{{self.key},\n  author = {{{self.authors}}},\n"
            f"  title = {{{{{self.title}}}}},\n"
            f"  {where} = {{{self.venue}}}, year = {{{self.year}}}\n}}"
        )


@dataclass(frozen=True)
class GateInfo:
    """One row of `attnlab modules`."""

    name: str
    build: type[nn.Module]
    form: Form
    title: str
    paper: str
    not_on_vector: str = ""
    """Why ASR cannot feed it a learned vector; empty if it can."""
    vector_options: Mapping[str, object] = field(default_factory=dict)
    """Options that ASR fixes, since the vector leaves no choice."""
    reference: Reference | None = None
    """The paper for a bibliography; every registered gate has one."""

    @property
    def on_vector(self) -> bool:
        """Whether the gate can be put on a learned vector, as "asr:name"."""
        return issubclass(self.build, Gate) and self.build.on_vector

    @property
    def at_heads(self) -> bool:
        """Whether it belongs in front of the output projection of attention, if there is one."""
        return issubclass(self.build, Gate) and self.build.at_heads

    @property
    def constant(self) -> bool:
        """Whether the gate, without a learned vector, is the same for every input."""
        return issubclass(self.build, ConstantGate)
