"""The short way to a gated addition: the branch comes marked, and the addition finds the mark.

A function mode shows every operation of a block to Python, which takes longer than many a block.
Where the branch is what a child of the block returns, a hook there hands on a marked tensor
instead, and only what is done with that one comes by: the addition. It is the same addition with
the same operands; where anything is unusual, the block runs under the mode.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter, call
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.utils._pytree import tree_map

from attnlab._errors import SiteError
from attnlab.residuals.attachment import Attachment
from attnlab.residuals.checkpointing import runs_again
from attnlab.residuals.operations import ADDITIONS
from attnlab.residuals.steps import Step
from attnlab.surgery.insertion._outputs import gate_names

MARK = -2
"""The key of the hook that marks; `_outputs.HOOK` is another."""


@dataclass
class GatedAddition:
    """An addition that carries gates."""

    step: Step
    attachments: list[Attachment]
    marks: MarkHook | None = None
    """What marks its branch, where a child of the module that adds returns it."""

    def gated(self, branch: Tensor, shortcut: Tensor) -> Tensor:
        """The branch, multiplied by its gates."""
        for attachment in self.attachments:
            branch = attachment(branch, shortcut, True)
        return branch

    def mark_behind(self, owner: nn.Module) -> None:
        """Let a child of `owner`, which makes the addition, mark the branch if it returns that."""
        step = self.step
        for path in reversed(step.branch_modules):
            keeper, _, name = path.rpartition(".")
            host = owner._modules.get(name)
            if keeper == step.owner and host is not None and not isinstance(host, Attachment):
                # Of a branch that others read as well, it could not be told which addition is it.
                if step.key.plain and not step.branch_shared and MARK not in host._forward_hooks:
                    self.marks = host._forward_hooks[MARK] = MarkHook(name, host, self)
                return


class _Runs(threading.local):
    """The call of a module with gated additions that runs in this thread by the short way."""

    acted: dict[int, int] | None = None
    """How often each addition was gated, by the ids of `GatedAddition`."""
    trains: bool = False
    """Whether a backward pass may follow, which may run a part of the call again."""


_runs = _Runs()


_watchers = attrgetter(
    "_compiled_call_impl", "_backward_hooks", "_backward_pre_hooks", "_forward_hooks"
)
_backward_hooks_of_all = (
    torch_module._global_backward_hooks,
    torch_module._global_backward_pre_hooks,
)
_modes = (
    torch._C._len_torch_function_stack,
    torch._C._get_tracing_state,
    torch._C._functorch.peek_interpreter_stack,  # torch.vmap, torch.func.grad
)


class MarkHook:
    """Forward hook that marks what a module returns while the module that adds it runs."""

    def __init__(self, name: str, host: nn.Module, addition: GatedAddition) -> None:
        self.name = name
        self.host = host
        self.addition = addition
        self.unwatched: tuple[object, ...] = (None, {}, {}, {MARK: self})
        """The compiled call and the hooks of the host if nobody else looks at what it returns."""

    def __call__(self, module: nn.Module, arguments: object, output: Tensor) -> Tensor:
        del module, arguments
        if torch.compiler.is_dynamo_compiling():
            return output
        acted = _runs.acted
        if acted is None or id(self.addition) not in acted or type(output) is not Tensor:
            return output
        marked = output.as_subclass(MarkedBranch)
        marked.plain, marked.addition = output, self.addition
        return marked

    def may_run(self, owner: nn.Module) -> bool:
        """Return whether a call of `owner` with a tensor can go the short way.

        In training it could take another path than on the example, which was run in eval mode, and
        a branch that is dropped at random on its way has lost its mark. With hooks for gradients,
        torch hands on another tensor than the one that was marked. Several things are asked in one
        go, since every block comes by.
        """
        if owner.training or torch.compiler.is_compiling() or any(map(call, _modes)):
            return False
        host = owner._modules.get(self.name)
        return (
            host is self.host
            and _watchers(host) == self.unwatched
            and not any(_backward_hooks_of_all)
        )

    def run(self, owner: nn.Module, forward: Callable[..., object], given: Tensor) -> object:
        """`forward(owner, given)`, in which the addition must be made once."""
        known = id(self.addition)
        before, trained = _runs.acted, _runs.trains
        _runs.acted = acted = {known: 0}
        _runs.trains = torch.is_grad_enabled()
        try:
            output = forward(owner, given)
        finally:
            _runs.acted, _runs.trains = before, trained
        if acted[known] != 1:
            raise _not_once(owner, self, acted[known])
        return output.plain if type(output) is MarkedBranch else output


class MarkedBranch(Tensor):
    """What a module returned, on its way to the addition at which gates act on it."""

    plain: Tensor
    addition: GatedAddition

    # Torch would come to the same by `__torch_function__`, and takes longer to get there.
    def __add__(self, other: Any) -> Any:
        return _sum(Tensor.__add__, self, other, 0)

    def __radd__(self, other: Any) -> Any:
        return _sum(operator.add, self, other, 1)

    def __iadd__(self, other: Any) -> Any:
        return _sum(Tensor.__iadd__, self, other, 0)

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> Any:
        del types
        if len(args) == 2 and not kwargs and function in ADDITIONS:
            place = 0 if type(args[0]) is MarkedBranch else 1
            marked = args[place]
            if type(marked) is MarkedBranch:
                return _sum(function, marked, args[1 - place], place)
        return function(*tree_map(_plain, args), **tree_map(_plain, kwargs or {}))


def _sum(function: Callable[..., object], marked: MarkedBranch, other: Any, place: int) -> Any:
    """The addition `function` of a branch and something else, with the gates if it is theirs;
    `place` is where the branch stands."""
    if type(other) is MarkedBranch:
        other = other.plain
    branch, addition, acted = marked.plain, marked.addition, _runs.acted
    step, known = addition.step, id(addition)
    if (
        acted is not None
        and known in acted
        and place == step.branch_operand
        and isinstance(other, Tensor)
        and branch.shape == other.shape
    ):
        if _runs.trains and runs_again(MarkHook.run.__code__, run_marked.__code__):
            raise checkpointed_error(addition)
        acted[known] += 1
        for attachment in addition.attachments:
            branch = attachment(branch, other, True)
        return other.add_(branch) if step.overwrites else other + branch
    return function(branch, other) if place == 0 else function(other, branch)


def _plain(value: Any) -> Any:
    return value.plain if type(value) is MarkedBranch else value


def may_mark(
    owner: nn.Module, additions: Sequence[GatedAddition], args: tuple[object, ...]
) -> bool:
    """Return whether a call of `owner` can go the short way."""
    if not args or type(args[0]) is not Tensor:
        return False
    return all(each.marks is not None and each.marks.may_run(owner) for each in additions)


def run_marked(
    owner: nn.Module,
    additions: Sequence[GatedAddition],
    forward: Callable[..., object],
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> Any:
    """`forward(*args, **kwargs)` of `owner`, in which every gated addition must be made once."""
    acted = {id(each): 0 for each in additions}
    before, trained = _runs.acted, _runs.trains
    _runs.acted, _runs.trains = acted, torch.is_grad_enabled()
    try:
        output = forward(*args, **kwargs)
    finally:
        _runs.acted, _runs.trains = before, trained
    for each in additions:
        if acted[id(each)] != 1:
            assert each.marks is not None
            raise _not_once(owner, each.marks, acted[id(each)])
    return _plain(output)


def _not_once(owner: nn.Module, marks: MarkHook, count: int) -> SiteError:
    return SiteError(
        f"The forward of {type(owner).__name__} added what its {marks.name!r} returned {count} "
        f"times, and once at insertion, so the gated addition cannot be told. Insert again with an "
        f"example that takes this path (example=...), or choose other sites with where=."
    )


def checkpointed_error(gated: GatedAddition) -> SiteError:
    """Of an addition that the backward pass runs again without its gate: the gradients would be
    those of a network without it, without a word."""
    attachments = gated.attachments
    return SiteError(
        f"The {gate_names(attachments[:1])} acts {attachments[0].site.at}, which is made in a part "
        f"of that module's forward whose activations are checkpointed: the backward pass runs that "
        f"part alone once more, without the gate. Switch checkpointing off inside of the module, "
        f"and checkpoint it as a whole."
    )
