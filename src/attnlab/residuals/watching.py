"""Watch the steps and the gates of a network while it runs: the one place that knows how.

Each module that makes a residual addition runs its forward under a small function mode, which
recognises the addition and shows both operands just before they are added. That is the only
moment at which the state and the branch are both there and neither can have been overwritten:
hooks on modules see a tensor after in-place operations have been at it.
"""

from __future__ import annotations

from abc import ABC
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from attnlab._checked import check_module
from attnlab._errors import InputError
from attnlab.gates import InstanceEnhancementBatchNorm
from attnlab.residuals.adapters import inside_adapter, marked_adapters
from attnlab.residuals.attachment import Attachment
from attnlab.residuals.example import Example, Run, run_once, running_eagerly
from attnlab.residuals.form import Multiplier
from attnlab.residuals.gates import GateSource, find_gates
from attnlab.residuals.library import OwnGates, check_own_gates
from attnlab.residuals.operations import Addends, add_up, addends, is_in_place
from attnlab.residuals.products import Teller, ToldProduct, replace_method, watch_products
from attnlab.residuals.site import Position
from attnlab.residuals.steps import Step, find_steps


class SeenStep(NamedTuple):
    """A step that is about to be made. The tensors are the network's own: do not write to them."""

    step: Step
    shortcut: Tensor
    """x_t, or what the network adds in its place."""
    branch: Tensor
    """f(x_t) ⊗ Δt, as it is added."""
    mutated: bool
    """Whether the shortcut was changed in place since the module that adds was entered."""


class SeenGate(NamedTuple):
    """A gate that returned its value."""

    gate: GateSource
    value: Tensor
    """Broadcastable to what it multiplies."""
    branch: Tensor | None
    """What it multiplies; None where that is not seen, for gates that attnlab did not insert."""
    step: Step | None
    """The step on whose branch it acts, or None."""
    position: Position | Literal["unknown"]
    """As of a `Site`; `unknown` for a call that was not made on the example."""

    def by_channel(self) -> Tensor:
        """The value as (rows, channels, places): one row where all inputs have the same."""
        if self.gate.multipliers:
            return _by_numbers(self.gate.multipliers[0], self.value.detach())
        values = self.value.detach().movedim(self.gate.channel_axis, 1)
        return values.flatten(2) if values.ndim > 2 else values.unsqueeze(2)

    def pair(self) -> tuple[Tensor, Tensor]:
        """The value and what it multiplies, which must be known, as (rows, channels, places)."""
        assert self.branch is not None
        pair = torch.broadcast_tensors(self.value.detach(), self.branch.detach())
        if not self.gate.multipliers:
            value, branch = (each.movedim(self.gate.channel_axis, 1).flatten(2) for each in pair)
            return value, branch
        (multiplier, *_) = self.gate.multipliers
        more = pair[0].dim() - self.value.dim()
        axes = tuple(axis + more for axis in multiplier.channel_axes)
        value, branch = (_by_numbers(replace(multiplier, channel_axes=axes), x) for x in pair)
        return value, branch


def _by_numbers(multiplier: Multiplier, value: Tensor) -> Tensor:
    if multiplier.origin == "parameter":
        return value.reshape(1, -1, 1)
    if not multiplier.channel_axes:
        return value.reshape(len(value), 1, -1)
    first = tuple(range(1, 1 + len(multiplier.channel_axes)))
    moved = value.movedim(multiplier.channel_axes, first).flatten(1, len(first))
    return moved.reshape(*moved.shape[:2], -1)


class Observer(ABC):  # noqa: B024
    """Told of a network's calls, steps and gates by `watching`. Override what you need."""

    sees_products: ClassVar[bool] = False
    """Whether to be told of what the network multiplies by itself: its own gates and matrices."""

    def call_begun(self, arguments: tuple[object, ...], keywords: dict[str, object]) -> None:  # noqa: B027
        """A forward of the whole network begins."""

    def call_ended(self, output: object) -> None:  # noqa: B027
        """Called when the network has returned."""

    def step_seen(self, seen: SeenStep) -> Tensor | None:
        """A step is about to be made. A tensor that this returns is added in the branch's place."""
        del seen
        return None

    def gate_seen(self, seen: SeenGate) -> Tensor | None:
        """A gate returned its value. A tensor that this returns is taken in its place."""
        del seen
        return None


@dataclass(frozen=True)
class Watchable:
    """What there is to watch in a network, from one recorded run."""

    run: Run
    steps: tuple[Step, ...]
    gates: tuple[GateSource, ...]


def watchable(
    model: nn.Module, example: Example | None = None, own: OwnGates | None = None
) -> Watchable:
    """The steps and the gates of `model`, by one run on `example` (or on one made up); `own` names
    your own classes of attention, `{"SELayer": "fc"}`: what of a `SELayer` returns its gate."""
    check_module(model)
    if own:
        check_own_gates(model, own)
    run = run_once(model, example)
    return watchable_in(model, run, find_steps(run.graph), own)


def watchable_in(
    model: nn.Module, run: Run, steps: Sequence[Step], own: OwnGates | None = None
) -> Watchable:
    """These steps of a recorded run of `model` and all its gates, without which what they add would
    be counted among the additions of their hosts."""
    return Watchable(run, tuple(steps), find_gates(model, run.graph, steps, own))


@contextmanager
def watching(
    model: nn.Module,
    observer: Observer,
    example: Example | None = None,
    *,
    found: Watchable | None = None,
) -> Iterator[Watchable]:
    """Tell `observer` of every call, step and gate of `model` inside the `with` block.

    `example` is an input to find the steps with; one is made up when None. `found` is what
    `watchable` returned, where it is there already. What runs outside a call of the network itself
    is not told: one of its modules called alone, a checkpointed part that is run once more by a
    backward pass. A compiled network runs uncompiled inside the block. Afterwards the network is as
    before, whatever happened.
    """
    found = watchable(model, example) if found is None else found
    watch = _Watch(observer)
    owners: dict[str, list[Step]] = defaultdict(list)
    if type(observer).step_seen is not Observer.step_seen:
        for step in found.steps:
            owners[step.owner].append(step)
    with ExitStack() as cleaning:
        cleaning.enter_context(running_eagerly())
        cleaning.enter_context(marked_adapters(model))
        begin = model.register_forward_pre_hook(watch.begin, with_kwargs=True, prepend=True)
        cleaning.enter_context(begin)
        cleaning.enter_context(model.register_forward_hook(watch.end))
        for owner, steps in owners.items():
            module = model.get_submodule(owner)
            replace_method(cleaning, module, "forward", watch.owner_forward(module, steps))
        for gate in found.gates:
            if gate.kind != "product":
                module = model.get_submodule(gate.name)
                _watch_gate(cleaning, module, gate, watch.gate_teller(gate))
        if observer.sees_products:
            watch_products(cleaning, model, _told_products(watch, found.gates))
        yield found


def _told_products(watch: _Watch, gates: Sequence[GateSource]) -> Iterator[ToldProduct]:
    for gate in gates:
        if gate.kind == "product":
            tell = watch.gate_teller(gate)
            for each in gate.multipliers:
                assert each.key is not None
                yield ToldProduct(each.key, tell)


class _Watch:
    """The calls of one network, and whom to tell."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.running = False
        self.calls: Counter[str] = Counter()
        self.gate_calls: Counter[str] = Counter()

    def begin(self, module: nn.Module, arguments: Any, keywords: Any) -> None:
        del module
        self.calls.clear()
        self.gate_calls.clear()
        self.running = True
        self.observer.call_begun(arguments, keywords)

    def end(self, module: nn.Module, arguments: object, output: object) -> None:
        del module, arguments
        self.running = False
        self.observer.call_ended(output)

    def owner_forward(self, module: nn.Module, steps: list[Step]) -> Callable[..., object]:
        original, owner = module.forward, steps[0].owner

        def forward(*args: object, **kwargs: object) -> object:
            if not self.running:
                return original(*args, **kwargs)
            now = [step for step in steps if step.key.call == self.calls[owner]]
            self.calls[owner] += 1
            with _AdditionWatch(self.observer, now, (args, kwargs)) as additions:
                output = original(*args, **kwargs)
            additions.check()
            return output

        return forward

    def gate_teller(self, gate: GateSource) -> Teller:
        def tell(value: Tensor, branch: Tensor | None) -> Tensor:
            if not self.running:
                return value
            unknown: tuple[None, Literal["unknown"]] = (None, "unknown")
            step, position = gate.calls.get(self.gate_calls[gate.name], unknown)
            self.gate_calls[gate.name] += 1
            told = self.observer.gate_seen(SeenGate(gate, value, branch, step, position))
            return value if told is None else told

        return tell


def _watch_gate(cleaning: ExitStack, module: nn.Module, gate: GateSource, tell: Teller) -> None:
    """What gates and observers add must not be counted among the network's own additions."""
    if isinstance(module, Attachment):
        original = module.step_size

        def step_size(branch: Tensor, shortcut: Tensor | None) -> Tensor:
            with torch._C.DisableTorchFunction():
                return tell(original(branch, shortcut), branch)

        replace_method(cleaning, module, "step_size", step_size)
        return
    scale = module.gate_scale if isinstance(module, InstanceEnhancementBatchNorm) else None
    inner = module.get_submodule("gate" if scale is not None else gate.submodule)

    def hook(module: nn.Module, arguments: object, output: Tensor) -> Tensor:
        del module, arguments
        with torch._C.DisableTorchFunction():
            value = output if scale is None else output * scale
            told = tell(value, None)
            if told is value:
                return output
            return told if scale is None else told / scale

    cleaning.enter_context(inner.register_forward_hook(hook))


class _AdditionWatch(TorchFunctionMode):
    """Recognises the additions of one call of a module that are steps."""

    def __init__(self, observer: Observer, steps: list[Step], arguments: object) -> None:
        super().__init__()
        self.observer = observer
        self.steps = steps
        self.counts = [0] * len(steps)
        self.versions = [
            (leaf, leaf._version)
            for leaf in tree_leaves(arguments)
            if isinstance(leaf, Tensor) and not leaf.is_inference()
        ]

    def __torch_function__(
        self,
        function: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        del types
        added = addends(function, args, kwargs)
        if added is not None and not inside_adapter():
            with torch._C.DisableTorchFunction():
                told = self._tell(added)
                operands = None if told is None else (told.first, told.second())
            # Not in the block above: a module around this one counts its additions, too.
            if operands is not None and added.plain:
                return function(*operands)
            if operands is not None:
                return add_up(*operands, is_in_place(function.__name__))
        return function(*args, **(kwargs or {}))

    def _tell(self, added: Addends) -> Addends | None:
        """What is added instead: the operands, but for a branch that the observer gave another
        value; None where that is as it was."""
        changed: Addends | None = None
        for number, step in enumerate(self.steps):
            if step.key.could_be(added.first.shape, added.plain):
                if self.counts[number] == step.key.addition:
                    changed = self._seen(step, added) or changed
                self.counts[number] += 1
        return changed

    def _seen(self, step: Step, added: Addends) -> Addends | None:
        operands = [added.first, added.second()]
        shortcut, branch = operands[1 - step.branch_operand], operands[step.branch_operand]
        mutated = self._mutated(shortcut)
        told = self.observer.step_seen(SeenStep(step, shortcut, branch, mutated))
        if told is None:
            return None
        # Its caller may use the operand that `add_` writes to, not its result.
        written = step.overwrites and step.branch_operand == 0
        operands[step.branch_operand] = branch.copy_(told) if written else told
        return Addends(operands[0], (operands[1],))

    def _mutated(self, tensor: Tensor) -> bool:
        return any(leaf is tensor and leaf._version != then for leaf, then in self.versions)

    def check(self) -> None:
        """Raise `InputError` unless the call made the additions that it made on the example."""
        for count, step in zip(self.counts, self.steps, strict=True):
            if count != step.owner_additions:
                raise InputError(
                    f"{step.owner!r} made {count} additions like that of step {step.label}, of "
                    f"which {step.owner_additions} were seen on the example, so the step cannot be "
                    f"told. Pass an example that takes this path: example=..."
                )
