"""Where a gate acts: the gate beside its host, and the multiplication it never does itself."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.fx import Proxy

from attnlab._errors import SiteError
from attnlab.gates import (
    BranchGate,
    CarryGate,
    ConstantGate,
    Gate,
    HyperConnections,
    StageGate,
    StepGate,
)
from attnlab.gates.hyper import plain_sizes
from attnlab.residuals.copying import double_on_cpu
from attnlab.residuals.fx import record_whole, was_handed
from attnlab.residuals.padded_calls import has_padding, of_valid_tokens
from attnlab.residuals.recorder import RecordedWhole
from attnlab.residuals.site import Site


def to_channel_first(features: Tensor, axis: int) -> Tensor:
    """View `features` (channels on `axis`) as (B, C, H, W); tokens become a column of height N."""
    if features.is_nested:
        raise SiteError(
            "A gate was given a nested tensor, rows of different lengths in one, which it cannot "
            "read. torch.nn.TransformerEncoder makes one of padded inputs in eval mode: build it "
            "with enable_nested_tensor=False, or set its use_nested_tensor = False."
        )
    seen = features.movedim(axis, 1)
    while seen.ndim < 4:
        seen = seen.unsqueeze(-1)
    return seen if seen.ndim == 4 else seen.flatten(3)


def gate_to_layout(gate: Tensor, features: Tensor, axis: int) -> Tensor:
    """View the (B, C, H, W)-shaped `gate` (any axis may be 1) to broadcast to `features`."""
    rank = features.ndim
    if rank < 4:
        placed = gate.flatten(rank - 1) if rank > 2 else gate[:, :, 0, 0]
    elif rank == 4:
        placed = gate
    else:
        behind = [n for d, n in enumerate(features.shape) if d not in (0, axis)]
        sizes = behind[1:] if gate.shape[3] != 1 else [1] * (rank - 3)
        placed = gate.unflatten(3, sizes)
    return placed.movedim(1, axis)


class Attachment(RecordedWhole, ABC):
    """A gate at a site of a host network, where it makes of the branch `branch ⊗ step size`.

    It hangs beside its host, as a child that only the host may call. `scale` is there only after
    `start="identity"`: the reciprocal of the gate's first value. It is a buffer, so that a
    checkpoint cannot be loaded into a network that would scale differently.
    """

    scale: Tensor | None
    goes_last: ClassVar[bool] = False
    """Whether it must stay the last at an addition, because it hands on more than the branch."""
    stays_because: ClassVar[str] = "its gate depends on the input"
    """Why it does not fold where it has no constant."""
    over_tokens = False
    """Whether the gate looks over all tokens of a sequence, so that it must not see padding."""
    beside = False
    """Whether these are others than the tokens that the network's mask tells of."""

    def __init__(self, site: Site, scale: float | None = None) -> None:
        super().__init__()
        self.site = site
        self.maps = site.channel_axis == 1
        """Whether the branch has its channels where a gate takes them, if it is a map."""
        self.in_graph = False
        """Whether a graph that torch.fx traced calls it."""
        self.removed = False
        """Whether it was taken off on purpose."""
        if scale is not None:
            self.register_buffer("scale", torch.tensor(scale))
        else:
            self.scale = None

    @property
    def name(self) -> str:
        """Its module name at insertion."""
        return f"{self.site.home}.{self.site.attribute}".removeprefix(".")

    @property
    @abstractmethod
    def gate_module(self) -> Gate:
        """The gate, which attachments of one stage may share."""

    @abstractmethod
    def step_size(self, branch: Tensor, shortcut: Tensor | None) -> Tensor:
        """Return what the branch is multiplied by, broadcastable to it."""

    def constant(self) -> Tensor | None:
        """The step size in float64, one value per channel, if it is the same for every input."""
        if not isinstance(self.gate_module, ConstantGate):
            return None
        with torch.no_grad():
            constant = double_on_cpu(self.gate_module).constant().detach()
            return constant if self.scale is None else constant * self.scale.cpu().double()

    def forward(
        self, branch: Tensor, shortcut: Tensor | None = None, hosted: bool = False
    ) -> Tensor:
        if hosted:
            return self.gated(branch, shortcut)
        if isinstance(branch, Proxy):
            self.in_graph = True
            seen = (branch,) if shortcut is None else (branch, shortcut)
            return record_whole(self, branch, seen)
        if not self.in_graph:
            raise self._called_error()
        if was_handed(self, branch):
            return branch
        if branch.is_quantized:
            return self.of_quantized(branch, shortcut)
        return self.gated(branch, shortcut)

    def gated(self, branch: Tensor, shortcut: Tensor | None) -> Tensor:
        """Return what is added to the shortcut in the branch's place."""
        return branch * self.step_size(branch, shortcut)

    def of_quantized(self, branch: Tensor, shortcut: Tensor | None) -> Tensor:
        """Return what it makes of a branch in a graph that torch quantised: it computes in float,
        and hands on the type that it was given, with the scale that the gated values need."""
        state = shortcut.dequantize() if shortcut is not None else None
        plain = branch.dequantize()
        gated = self.gated(plain, state)
        limits = torch.iinfo(torch.int8 if branch.dtype == torch.qint8 else torch.uint8)
        low, high = (float(v) for v in gated.aminmax())
        low, high = min(low, 0.0), max(high, 0.0)
        scale = max((high - low) / (limits.max - limits.min), 1e-12)
        zero = round(limits.min - low / scale)
        return torch.quantize_per_tensor(gated, scale, zero, branch.dtype)

    def _called_error(self) -> SiteError:
        home = f"module {self.site.home!r}" if self.site.home else "network"
        return SiteError(
            f"The gate {self.name!r} was called as if it were a layer: something runs all children "
            f"of the {home}, on which it hangs. A gate acts at its site and nowhere else. Give "
            f"what is run in a row a container of its own (nn.Sequential), or name what to run."
        )

    def _placed(self, gate: Tensor, branch: Tensor) -> Tensor:
        if self.scale is not None:
            gate = gate * self.scale
        axis = self.site.channel_axis
        return gate if axis == 1 and branch.ndim == 4 else gate_to_layout(gate, branch, axis)

    def _seen(self, features: Tensor) -> Tensor:
        axis = self.site.channel_axis
        return features if axis == 1 and features.ndim == 4 else to_channel_first(features, axis)

    def extra_repr(self) -> str:
        return "at the addition" if self.site.host == "addition" else self.site.at


class OwnedAttachment(Attachment, ABC):
    """A gate of its own, or that of another attachment, which owns it: with `shared=True` one gate
    acts in all chosen blocks of a stage.

    The gate is registered on its owner alone, so that its parameters appear once, under one name:
    weights of gates that are not shared do not load into gates that are.
    """

    gate: Gate

    def __init__(
        self, gate: Gate, site: Site, scale: float | None = None, *, owner: OwnedAttachment | None
    ) -> None:
        super().__init__(site, scale)
        self._owner = () if owner is None else (owner,)  # a tuple, so that it is not registered
        if owner is None:
            self.gate = gate

    @property
    def owner(self) -> OwnedAttachment:
        """The attachment on which the gate is registered."""
        return self._owner[0] if self._owner else self

    @property
    def gate_module(self) -> Gate:
        return self.owner.gate

    def take_over(self, owner: OwnedAttachment | None) -> None:
        """Let the gate belong to `owner` from now on; to this attachment itself if None."""
        gate = self.gate_module
        self._owner = () if owner is None else (owner,)
        if owner is None:
            self.gate = gate

    def _of_valid(self, branch: Tensor, shortcut: Tensor | None) -> Tensor:
        """The step size of the tokens that are no padding."""
        axis = self.site.channel_axis
        gate, name, compute = self.gate_module, self.name, self._computed
        return of_valid_tokens(gate, name, compute, branch, shortcut, channel_axis=axis)

    @abstractmethod
    def _computed(self, branch: Tensor, shortcut: Tensor | None) -> Tensor:
        """The step size of all tokens."""

    def _gate(self) -> Any:
        owner = self._owner[0] if self._owner else self
        return owner._modules["gate"]  # owner.gate is a slow search in three dictionaries


class BranchAttachment(OwnedAttachment):
    """A gate that reads the branch."""

    def __init__(
        self,
        gate: BranchGate,
        site: Site,
        scale: float | None = None,
        *,
        owner: OwnedAttachment | None = None,
    ) -> None:
        super().__init__(gate, site, scale, owner=owner)

    def step_size(self, branch: Tensor, shortcut: Tensor | None) -> Tensor:
        # As the gate takes it: the short way, since every block comes by. owner.gate is a slow
        # search in three dictionaries.
        if self.maps and branch.dim() == 4 and not self.over_tokens:
            owner = self._owner[0] if self._owner else self
            gate: Tensor = owner._modules["gate"](branch)  # type: ignore[misc]
            return gate if self.scale is None else gate * self.scale
        if self.over_tokens and has_padding(self.beside):
            return self._of_valid(branch, shortcut)
        return self._computed(branch, shortcut)

    def _computed(self, branch: Tensor, shortcut: Tensor | None) -> Tensor:
        del shortcut
        return self._placed(self._gate()(self._seen(branch)), branch)


class StepAttachment(OwnedAttachment):
    """A gate that reads both ends of the step."""

    def __init__(
        self,
        gate: StepGate,
        site: Site,
        scale: float | None = None,
        *,
        owner: OwnedAttachment | None = None,
    ) -> None:
        super().__init__(gate, site, scale, owner=owner)

    def step_size(self, branch: Tensor, shortcut: Tensor | None) -> Tensor:
        # As the gate takes it: the short way, since every block comes by. owner.gate is a slow
        # search in three dictionaries.
        if self.maps and branch.dim() == 4 and not self.over_tokens:
            owner = self._owner[0] if self._owner else self
            gate: Tensor = owner._modules["gate"](shortcut, branch)  # type: ignore[misc]
            return gate if self.scale is None else gate * self.scale
        if self.over_tokens and has_padding(self.beside):
            return self._of_valid(branch, shortcut)
        return self._computed(branch, shortcut)

    def _computed(self, branch: Tensor, shortcut: Tensor | None) -> Tensor:
        assert shortcut is not None, "a step gate is only ever attached to an addition"
        return self._placed(self._gate()(self._seen(shortcut), self._seen(branch)), branch)


class HeadsAttachment(StepAttachment):
    """A gate in front of the output projection of attention. What it reads is what the attention
    was given: the module that reads that first tells it, in the same forward."""

    def __init__(
        self,
        gate: StepGate,
        site: Site,
        scale: float | None = None,
        *,
        owner: OwnedAttachment | None = None,
    ) -> None:
        super().__init__(gate, site, scale, owner=owner)
        self._told = StageMemory()

    def tell(self, state: Tensor) -> None:
        """`state` is what the attention reads."""
        self._told.value = (state,)

    def gated(self, branch: Tensor, shortcut: Tensor | None) -> Tensor:
        del shortcut
        told, self._told.value = self._told.value, None
        if told is None:
            raise SiteError(
                f"The gate {self.name!r} reads what {self.site.reader!r} is given, but that did "
                f"not run before {self.site.module!r}: the attention takes another path now, or a "
                f"tool exchanged its modules after insertion. Run that tool first and insert "
                f"afterwards."
            )
        return super().gated(branch, told[0])


class CarryAttachment(StepAttachment):
    """A gate that also scales the state, `carry ⊗ x + gate ⊗ f(x)`.

    The network still adds x itself, so the branch is handed on with `(carry − 1) ⊗ x` in it. Where
    the carry is 1 nothing changes, to the bit; and whoever watches the addition sees the step that
    is made, `x_{t+1} − x_t`.
    """

    goes_last = True
    stays_because = (
        "it scales the state by another number than 1, and no layer of the branch can take that "
        "over: a plain network would need other ε in all norms that follow, which no file of "
        "weights holds. Keep it, or learn μ alone: 'rezero' with initial=1 folds"
    )

    def gated(self, branch: Tensor, shortcut: Tensor | None) -> Tensor:
        assert shortcut is not None, "a step gate is only ever attached to an addition"
        return branch * self.step_size(branch, shortcut) + self.carried(shortcut) * shortcut

    def constant(self) -> Tensor | None:
        """The gate's constant, if the state is carried on as it is: no branch can take a number
        that multiplies the state."""
        gate = double_on_cpu(self.gate_module)
        assert isinstance(gate, CarryGate)
        with torch.no_grad():
            if bool((gate.carry() != 1).any()):
                return None
            ones = torch.ones(1, gate.channels, 1, dtype=torch.float64)
            constant = gate(ones, ones).flatten()
            return constant if self.scale is None else constant * self.scale.cpu().double()

    def carry(self) -> Tensor:
        """Return what the state is multiplied by, one value per channel."""
        gate = self.gate_module
        assert isinstance(gate, CarryGate)
        return gate.carry()

    def carried(self, shortcut: Tensor) -> Tensor:
        """`carry − 1`, broadcastable to the shortcut."""
        beyond = (self.carry() - 1).to(shortcut.dtype)
        sizes = [1] * shortcut.ndim
        sizes[self.site.channel_axis] = -1
        return beyond.view(sizes)


class StageMemory(threading.local):
    """What one place left for a later one, during one forward run of a thread: a block of a stage
    for the next, the layer that begins an attention for the gate of its heads.

    It belongs to that run, not to the network: copies and files of a network have none.
    """

    value: tuple[Tensor, ...] | None = None

    def __reduce__(self) -> tuple[type[StageMemory], tuple[()]]:
        return StageMemory, ()


class StreamsAttachment(StepAttachment):
    """Hyper-connections at the step: the state has streams, kept here from addition to addition.

    The network itself carries what the next step reads of them. So the branch is handed on with the
    difference of what was read and what is read next in it. At first that is zero, to the bit.
    """

    goes_last = True
    stays_because = (
        "its steps read different sums of the state and the branches, which no network of one "
        "stream computes"
    )

    def __init__(
        self,
        gate: StepGate,
        site: Site,
        scale: float | None = None,
        *,
        owner: OwnedAttachment | None = None,
    ) -> None:
        super().__init__(gate, site, scale, owner=owner)
        self.chain: tuple[StreamsAttachment, ...] = ()
        """All that hand the streams on, in their order."""
        self.memory = StageMemory()

    @property
    def hyper(self) -> HyperConnections:
        """The gate."""
        gate: HyperConnections = self._gate()
        return gate

    def gated(self, branch: Tensor, shortcut: Tensor | None) -> Tensor:
        assert shortcut is not None, "a step gate is only ever attached to an addition"
        gate = self.hyper
        carried = gate.carried(self._streams(shortcut))
        following = gate.reading(carried) - shortcut
        last = self.chain[-1] is self
        self.memory.value = None if last else (carried + gate.written(branch),)
        return branch * self.step_size(branch, shortcut) + following

    def _streams(self, shortcut: Tensor) -> Tensor:
        if self.chain[0] is self:
            return shortcut.expand(self.hyper.streams, *shortcut.shape)
        if self.memory.value is None:
            raise SiteError(
                f"The gate {self.name!r} goes on with the streams that the step before it left, "
                f"but that did not run. Activation checkpointing does so when it computes a block "
                f"once more: checkpoint all steps together, or none."
            )
        return self.memory.value[0]

    def constant(self) -> Tensor | None:
        """Only where all steps of the chain read one sum `x + Σ μ f`."""
        sizes = plain_sizes([each.hyper for each in self.chain])
        if sizes is None:
            return None
        size = sizes[next(i for i, each in enumerate(self.chain) if each is self)]
        return torch.full((self.hyper.channels,), size, dtype=torch.float64)


class StageAttachment(Attachment):
    """A gate shared by the blocks of a stage, which hands a memory from block to block.

    The first attachment of the stage owns the gate; the others refer to it, so that its parameters
    appear once. The memory lives from the first block of the stage to the last of one forward run;
    so computing single blocks once more (activation checkpointing) is an error with such a gate.
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
        if self.over_tokens and has_padding(self.beside):
            raise SiteError(
                f"The gate {self.name!r} ({type(self.gate_module).__name__}) hands a memory from "
                f"block to block and looks over all tokens, so it cannot leave padding out. Use "
                f"batches without padding, or another gate, such as 'se'."
            )
        before = self._before()
        gate, after = self._shared[0](self._seen(branch), before)
        self._memory.value = None if self._last else after
        return self._placed(gate, branch)

    def _before(self) -> tuple[Tensor, ...] | None:
        if self._first:
            return None
        if self._memory.value is None:
            raise SiteError(
                f"The gate {self.name!r} ({type(self.gate_module).__name__}) goes on with what the "
                f"block before it in the stage left, but that block did not run. Activation "
                f"checkpointing does so when it computes a block once more: checkpoint whole "
                f"stages, or none (for timm, model.set_grad_checkpointing(False)), or choose "
                f"another gate. A block on its own can only be the first of its stage."
            )
        return self._memory.value
