"""The short way to a gated addition: the branch comes marked, and the addition finds the mark.

A function mode shows every operation of a block to Python, which takes longer than many a block.
Where the branch is what a child of the block returns, a hook there hands on a marked tensor
instead, and only what is done with that one comes by: the addition. It is the same addition with
the same operands; where anything is unusual, the block runs under the mode.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.utils._pytree import tree_map

from attnlab._errors import SiteError
from attnlab.residuals.attachment import Attachment
from attnlab.residuals.operations import adds_two
from attnlab.residuals.steps import Step

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


_runs = _Runs()


class MarkHook:
    """Forward hook that marks what a module returns while the module that adds it runs."""

    def __init__(self, name: str, host: nn.Module, addition: GatedAddition) -> None:
        self.name = name
        self.host = host
        self.addition = addition

    def __call__(self, module: nn.Module, arguments: object, output: Tensor) -> Tensor:
        del module, arguments
        if torch.compiler.is_compiling():
            return output
        acted = _runs.acted
        if acted is None or id(self.addition) not in acted or type(output) is not Tensor:
            return output
        marked = output.as_subclass(MarkedBranch)
        marked.plain, marked.addition = output, self.addition
        return marked

    def in_place(self, owner: nn.Module) -> bool:
        """Return whether the child of `owner` is as it was, and nobody else looks at what it
        returns."""
        host = owner._modules.get(self.name)
        if host is not self.host or host._compiled_call_impl is not None:
            return False
        # With hooks for gradients, torch hands on another tensor than the one that was marked.
        if host._backward_hooks or host._backward_pre_hooks or _backward_hooks_of_all():
            return False
        hooks = host._forward_hooks
        return len(hooks) == 1 and hooks.get(MARK) is self


def _backward_hooks_of_all() -> bool:
    return bool(torch_module._global_backward_hooks or torch_module._global_backward_pre_hooks)


class MarkedBranch(Tensor):
    """What a module returned, on its way to the addition at which gates act on it."""

    plain: Tensor
    addition: GatedAddition

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> Any:
        del types
        acted = _runs.acted
        if acted is not None and len(args) == 2 and not kwargs:
            place = 0 if type(args[0]) is MarkedBranch else 1
            marked, shortcut = args[place], _plain(args[1 - place])
            if type(marked) is MarkedBranch:
                branch, addition = marked.plain, marked.addition
                step, known = addition.step, id(addition)
                if (
                    known in acted
                    and place == step.branch_operand
                    and adds_two(function, branch, shortcut)
                ):
                    acted[known] += 1
                    for attachment in addition.attachments:
                        branch = attachment(branch, shortcut, True)
                    return shortcut.add_(branch) if step.overwrites else shortcut + branch
        return function(*tree_map(_plain, args), **tree_map(_plain, kwargs or {}))


def _plain(value: Any) -> Any:
    return value.plain if type(value) is MarkedBranch else value


def may_mark(
    owner: nn.Module, additions: Sequence[GatedAddition], args: tuple[object, ...]
) -> bool:
    """Return whether a call of `owner` can go the short way.

    In training it could take another path than on the example, which was run in eval mode, and a
    branch that is dropped at random on its way has lost its mark.
    """
    if (
        owner.training
        or torch.compiler.is_compiling()
        or not args
        or type(args[0]) is not Tensor
        or torch._C._len_torch_function_stack()
        or torch._C._get_tracing_state() is not None
        or torch._C._functorch.peek_interpreter_stack() is not None  # torch.vmap, torch.func.grad
    ):
        return False
    return all(each.marks is not None and each.marks.in_place(owner) for each in additions)


def run_marked(
    owner: nn.Module,
    additions: Sequence[GatedAddition],
    forward: Callable[..., object],
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> Any:
    """`forward(*args, **kwargs)` of `owner`, in which every gated addition must be made once."""
    before, acted = _runs.acted, {id(each): 0 for each in additions}
    _runs.acted = acted
    try:
        output = forward(*args, **kwargs)
    finally:
        _runs.acted = before
    for each in additions:
        if acted[id(each)] != 1:
            assert each.marks is not None
            raise SiteError(
                f"The forward of {type(owner).__name__} added what its {each.marks.name!r} "
                f"returned {acted[id(each)]} times, and once at insertion, so the gated addition "
                f"cannot be told. Insert again with an example that takes this path "
                f"(example=...), or choose other sites with where=."
            )
    return _plain(output)
