"""Watch the steps of a network while it runs: norms and gates, and no feature map kept.

Each module that makes a residual addition runs its forward under a small function mode, which
recognises the addition and measures both operands just before they are added. That is the only
moment at which the state and the branch are both there and neither can have been overwritten:
hooks on modules see a tensor after in-place operations have been at it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from attnlab._errors import InputError
from attnlab.insert import Attachment, Step, attachments
from attnlab.record.example import Example
from attnlab.record.operations import is_same_shape_addition
from attnlab.trajectory.conventions import StepNorms
from attnlab.trajectory.norms import norm, step_norms
from attnlab.trajectory.plan import Plan, WatchedStep, plan
from attnlab.trajectory.stages import Stages


class CapturedStep(NamedTuple):
    """One step of the last forward; norms are per input."""

    step: Step
    shortcut: Tensor
    """‖x_t‖."""
    branch: Tensor
    """‖f(x_t)‖, before the gate if attnlab inserted one; else what the network adds."""
    update: Tensor
    """‖f(x_t) ⊗ Δt‖, what the network adds."""
    change: Tensor
    """‖x_{t+1} − x_t‖, after the activation that follows the addition, if any."""
    gate: Tensor | None
    """Δt, (inputs, channels), averaged over space where it varies there; None without a gate."""
    mutated: bool
    """Whether x_t was changed in place between the owner's entry and the addition. The norms are
    those of what is really added; the state that the previous step left is another one."""


class Captured:
    """What the last forward of the watched network showed; a sequence of `CapturedStep`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._found: dict[int, CapturedStep] = {}
        self._gates: dict[tuple[int, int, int], tuple[Tensor, Tensor]] = {}
        self._calls: Counter[str] = Counter()
        self._inputs = 0

    @property
    def stages(self) -> Stages:
        """The stage of every step."""
        return self.plan.stages

    @property
    def norms(self) -> StepNorms:
        """All norms of the last forward, each (inputs, steps)."""
        steps = list(self)
        return StepNorms(
            torch.stack([step.shortcut for step in steps], 1),
            torch.stack([step.branch for step in steps], 1),
            torch.stack([step.update for step in steps], 1),
            torch.stack([step.change for step in steps], 1),
        )

    def __iter__(self) -> Iterator[CapturedStep]:
        missing = [w.step for n, w in enumerate(self.plan.watched) if n not in self._found]
        if missing:
            raise InputError(
                f"{len(missing)} of {len(self)} steps were not seen in the last forward, the first "
                f"of them {missing[0].label} ({missing[0].name}). Run the network inside the "
                f"`with` block; if it takes another path on this input, pass example=."
            )
        return (self._found[number] for number in range(len(self)))

    def __len__(self) -> int:
        return len(self.plan.watched)

    # --- called while the network runs

    def begin(self, arguments: Any) -> None:
        """A forward of the whole network starts: forget the last one."""
        self._found.clear()
        self._gates.clear()
        self._calls.clear()
        leaves = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, Tensor)]
        self._inputs = leaves[0].shape[0] if leaves else 0

    def next_call(self, owner: str) -> int:
        """Which call of `owner` in this forward starts now."""
        self._calls[owner] += 1
        return self._calls[owner] - 1

    def gated(self, attachment: Attachment, branch: Tensor, step_size: Tensor) -> None:
        """A gate returned its value for a branch."""
        site = attachment.site
        key = (site.stage, site.block, site.part)
        axes = [a for a in range(1, step_size.ndim) if a != site.channel_axis % step_size.ndim]
        mean = step_size.detach().float().mean(axes) if axes else step_size.detach().float()
        gate = mean.reshape(step_size.shape[0], -1)
        if len(gate) > self._inputs:  # windows folded into the batch
            gate = gate.view(self._inputs, -1, gate.shape[1]).mean(1)
        gate = gate.expand(self._inputs, -1)
        if key in self._gates:
            branch_norm, before = self._gates[key]
            self._gates[key] = branch_norm, before * gate
        else:
            self._gates[key] = norm(branch.detach(), self._inputs), gate

    def added(
        self, number: int, watched: WatchedStep, shortcut: Tensor, branch: Tensor, mutated: bool
    ) -> None:
        """Step `number` is about to be made."""
        step, inputs = watched.step, self._inputs
        if inputs == 0 or shortcut.shape[0] % inputs:
            raise InputError(
                f"Expected the state of step {step.label} ({step.name}) to have the {inputs} "
                f"inputs along its first axis but got shape {tuple(shortcut.shape)}."
            )
        with torch.no_grad():
            state, update, change = step_norms(shortcut, branch, inputs, watched.activation)
        before = self._gates.get((step.stage, step.block, step.part))
        branch_norm, gate = (update, None) if before is None else before
        self._found[number] = CapturedStep(step, state, branch_norm, update, change, gate, mutated)


@contextmanager
def capture(model: nn.Module, example: Example | None = None) -> Iterator[Captured]:
    """Watch `model` inside a `with` block; afterwards it is as before, whatever happened.

        with capture(model) as steps:
            model(images)
            nsi(steps.norms, "branch")      # (inputs, steps)

    Every forward of the network replaces what the one before showed. `example` is an input to find
    the steps with; one is made up when None.
    """
    captured = Captured(plan(model, example))
    with watching(model, captured):
        yield captured


@contextmanager
def watching(model: nn.Module, captured: Captured) -> Iterator[None]:
    """Tell `captured` of every forward, gate and step of `model` inside the block."""
    with ExitStack() as cleaning:
        handle = model.register_forward_pre_hook(
            lambda _, arguments, keywords: captured.begin((arguments, keywords)),
            with_kwargs=True,
            prepend=True,
        )
        cleaning.callback(handle.remove)
        for owner, steps in _by_owner(captured.plan).items():
            module = model.get_submodule(owner)
            _replace_method(cleaning, module, "forward", _watched(captured, owner, steps, module))
        for _, attachment in attachments(model):
            reading = _read_gate(captured, attachment)
            _replace_method(cleaning, attachment, "step_size", reading)
        yield


_Numbered = list[tuple[int, WatchedStep]]


def _by_owner(found: Plan) -> dict[str, _Numbered]:
    owners: dict[str, _Numbered] = defaultdict(list)
    for number, watched in enumerate(found.watched):
        owners[watched.step.owner].append((number, watched))
    return owners


def _replace_method(
    cleaning: ExitStack, module: nn.Module, name: str, method: Callable[..., Any]
) -> None:
    """Give one object its own method; taken off again, and what was there before put back."""
    attributes = module.__dict__
    if name in attributes:
        cleaning.callback(attributes.__setitem__, name, attributes[name])
    else:
        cleaning.callback(attributes.pop, name)
    attributes[name] = method


def _watched(
    captured: Captured, owner: str, steps: _Numbered, module: nn.Module
) -> Callable[..., Any]:
    original = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        call = captured.next_call(owner)
        now = [(number, watched) for number, watched in steps if watched.call == call]
        with _AdditionWatch(captured, now, (args, kwargs)):
            return original(*args, **kwargs)

    return forward


def _read_gate(captured: Captured, attachment: Attachment) -> Callable[..., Tensor]:
    original = attachment.step_size

    def step_size(branch: Tensor, shortcut: Tensor | None) -> Tensor:
        size = original(branch, shortcut)
        captured.gated(attachment, branch, size)
        return size

    return step_size


class _AdditionWatch(TorchFunctionMode):
    """Recognises the additions of one call of a module that are steps, and measures them."""

    def __init__(self, captured: Captured, steps: _Numbered, arguments: Any) -> None:
        super().__init__()
        self.captured = captured
        self.steps = steps
        self.seen: Counter[int] = Counter()
        self.versions = [
            (leaf, leaf._version)
            for leaf in tree_leaves(arguments)
            if isinstance(leaf, Tensor) and not leaf.is_inference()
        ]

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        del types
        if is_same_shape_addition(function, args, kwargs):
            with torch._C.DisableTorchFunction():
                self._measure(args[0], args[1])
        return function(*args, **(kwargs or {}))

    def _measure(self, first: Tensor, second: Tensor) -> None:
        for number, watched in self.steps:
            if watched.step.could_be(first.shape):
                self.seen[number] += 1
                if self.seen[number] == watched.step.addition + 1:
                    shortcut, branch = first, second
                    if watched.step.branch_operand == 0:
                        shortcut, branch = second, first
                    mutated = self._mutated(shortcut)
                    self.captured.added(number, watched, shortcut, branch, mutated)

    def _mutated(self, tensor: Tensor) -> bool:
        return any(leaf is tensor and leaf._version != then for leaf, then in self.versions)
