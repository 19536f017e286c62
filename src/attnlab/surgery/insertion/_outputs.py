"""Gates after a module's output, or in front of it: a hook that follows the module's name.

Tools replace modules (SyncBatchNorm, frozen norms, fused convolutions, LoRA layers); what stays is
the name under which the parent runs them. So the parent, the *keeper*, knows the name, and moves
the hook to whatever module has it now.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Proxy, Tracer

from attnlab._errors import GateLostError, SiteError
from attnlab.residuals.attachment import Attachment, HeadsAttachment
from attnlab.residuals.fx import forget_handed, hand_over

HOOK = -1
"""The hook's key: one per module, however often it is put there. Torch counts its own from 0."""

_running = threading.local()


class OutputHook:
    """Forward hook that gates a module's output."""

    def __init__(self, host: nn.Module, attachments: list[Attachment], hidden: bool) -> None:
        self.host = host
        self.attachments = attachments
        self.hidden = hidden
        """Whether the host lies inside a module whose additions are counted; the gate's own
        additions must not be."""
        self.live = True
        """False once another hook has taken over: tools hand hooks on to the modules they make."""
        self.counted = False
        """Whether the keeper was rebuilt, and counts how often this hook acts."""
        self.in_graph = False
        """Whether a graph that torch.fx traced calls the gates as well."""
        self.calls = 0
        """How often it acted outside of compiled graphs, which would hold for one number alone."""
        self.traced = False
        """Whether it acted in the call of its keeper that torch.compile traces, or that its graphs
        are a part of: where one breaks, what follows runs outside of graphs."""

    @staticmethod
    def slots(host: nn.Module) -> dict[int, Any]:
        """Where such a hook is put at a module, under `HOOK`."""
        return host._forward_hooks

    def __call__(self, module: nn.Module, arguments: Any, output: Any) -> Any:
        del module, arguments
        if not self.live:
            return output
        # Not is_compiling(), which takes twice as long, twice for each gate.
        if not torch.compiler.is_dynamo_compiling():
            self.calls += 1
        self.traced = True
        if not (self.counted or self.in_graph or self.hidden):  # nearly always
            for attachment in self.attachments:
                output = attachment(output, None, True)
            return output
        if self.counted:
            count_call(self)
        if self.in_graph and isinstance(output, Proxy):
            return self.record(output)
        if self.in_graph and output.is_quantized:
            for attachment in self.attachments:
                output = attachment.of_quantized(output, None)
        elif self.hidden:
            with torch._C.DisableTorchFunction():
                for attachment in self.attachments:
                    output = attachment(output, None, True)
        else:
            for attachment in self.attachments:
                output = attachment(output, None, True)
        if self.in_graph:
            hand_over(self.attachments, output)
        return output

    def record(self, output: object) -> object:
        """The gates as nodes of the graph that is being traced, after `output`."""
        for attachment in self.attachments:
            output = attachment(output)
        return output

    def discard(self, gone: Collection[int]) -> None:
        """Forget the attachments with these ids."""
        self.attachments = [a for a in self.attachments if id(a) not in gone]


class InputHook(OutputHook):
    """Forward pre-hook that gates what a module is given."""

    @staticmethod
    def slots(host: nn.Module) -> dict[int, Any]:
        return host._forward_pre_hooks

    def __call__(self, module: nn.Module, arguments: Any, output: Any = None) -> Any:
        del output
        if not self.live:
            return None
        if not arguments or not isinstance(arguments[0], Tensor):
            raise SiteError(
                f"The {gate_names(self.attachments)} acts in front of "
                f"{self.attachments[0].site.module!r}, which was not called with a tensor first, "
                f"as at insertion. Insert again with an example that takes this path (example=...)."
            )
        return (super().__call__(module, (), arguments[0]), *arguments[1:])


class ReadHook(InputHook):
    """Forward pre-hook that tells gates further on what a module is given."""

    def __call__(self, module: nn.Module, arguments: Any, output: Any = None) -> None:
        del module, output
        if self.live and arguments and isinstance(arguments[0], Tensor):
            if not torch.compiler.is_dynamo_compiling():
                self.calls += 1
            self.traced = True
            if self.counted:
                count_call(self)
            for attachment in self.attachments:
                assert isinstance(attachment, HeadsAttachment)
                attachment.tell(arguments[0])


def host_at_child(
    keeper: nn.Module,
    hooks: dict[str, OutputHook],
    name: str,
    attachment: Attachment,
    kind: type[OutputHook] = OutputHook,
) -> None:
    """Let `attachment` act at the child `name` of `keeper`, after those that do already."""
    if name in hooks:
        hooks[name].attachments.append(attachment)
    else:
        host = keeper.get_submodule(name)
        hooks[name] = kind.slots(host)[HOOK] = kind(host, [attachment], hidden=False)


def hooks_at(host: nn.Module) -> Iterator[OutputHook]:
    """The hooks of gates that are put at a module."""
    for slots in (host._forward_hooks, host._forward_pre_hooks):
        hook = slots.get(HOOK)
        if isinstance(hook, OutputHook):
            yield hook


def follow(keeper: nn.Module, outputs: dict[str, OutputHook]) -> None:
    """Move hooks to the modules that have their names now; a name without a module is an error."""
    for name, hook in outputs.items():
        host = keeper._modules.get(name)
        if host is hook.host:
            hook.slots(host)[HOOK] = hook
        elif host is None:
            raise _gone(keeper, name, hook)
        else:
            outputs[name] = moved(hook, host)


def moved(hook: OutputHook, host: nn.Module) -> OutputHook:
    """`hook` on another host. A new one: the old may have been handed on to other modules."""
    hook.live = False
    new = type(hook)(host, hook.attachments, hook.hidden)
    new.in_graph = hook.in_graph
    new.slots(host)[HOOK] = new
    return new


def count_call(hook: OutputHook) -> None:
    """Note for `each_once` that `hook` acts."""
    calls: list[OutputHook] | None = getattr(_running, "calls", None)
    if calls is not None:
        calls.append(hook)


def each_once(
    keeper: nn.Module,
    hooks: Collection[tuple[str, OutputHook]],
    forward: Callable[..., object],
    *args: object,
    **kwargs: object,
) -> object:
    """`forward(*args, **kwargs)` of a keeper that was rebuilt; every hook must act once in it."""
    for _, hook in hooks:
        hook.counted = True
    before: list[OutputHook] | None = getattr(_running, "calls", None)
    calls: list[OutputHook] = []
    _running.calls = calls
    try:
        output = forward(*args, **kwargs)
    finally:
        _running.calls = before
        if before is not None:
            before.extend(calls)
    for name, hook in hooks:
        count = sum(call is hook for call in calls)
        if count != 1:
            raise _not_once(keeper, name, hook, count)
    return output


def on_its_own(
    outputs: dict[str, OutputHook], forward: Callable[..., object], *args: object, **kwargs: object
) -> object:
    """`forward(*args, **kwargs)` of the network itself, not of a graph traced from it."""
    try:
        return forward(*args, **kwargs)
    finally:
        for hook in outputs.values():
            forget_handed(hook.attachments)


WHAT_TO_DO = (
    "Run that tool first and insert afterwards; or fold the gates first, if they are constant: "
    "attnlab.fold(network), with fuse=True to fuse as well. To go on without what is lost: "
    "attnlab.remove(network, only_lost=True)."
)


def gate_names(attachments: list[Attachment]) -> str:
    """The names that the attachments had at insertion."""
    names = [repr(a.name) for a in attachments]
    return f"gate{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _gone(keeper: nn.Module, name: str, hook: OutputHook) -> GateLostError:
    return GateLostError(
        f"The {gate_names(hook.attachments)} acted {hook.attachments[0].site.at}, but "
        f"{type(keeper).__name__} has no module {name!r} any more: a tool that fuses or rebuilds "
        f"modules took it away after insertion. {WHAT_TO_DO}"
    )


def _not_once(keeper: nn.Module, name: str, hook: OutputHook, count: int) -> GateLostError:
    return GateLostError(
        f"The {gate_names(hook.attachments)} acts {hook.attachments[0].site.at}, but "
        f"{type(keeper).__name__} ran its {name!r} {count} times instead of once: its forward or "
        f"its modules were changed after insertion. {WHAT_TO_DO}"
    )


@contextmanager
def recording_gates(tracer: Tracer, hooks: Mapping[int, OutputHook]) -> Iterator[None]:
    """While inside, a module that is recorded whole is followed by the gates of its hook; `hooks`
    are by the ids of their modules."""
    before = tracer.__dict__.get("call_module")
    original = tracer.call_module

    def call_module(module: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        output = original(module, forward, args, kwargs)
        hook = hooks.get(id(module))
        if hook is not None and tracer.is_leaf_module(module, tracer.path_of_module(module)):
            return hook.record(output)
        return output

    tracer.__dict__["call_module"] = call_module
    try:
        yield
    finally:
        if before is None:
            del tracer.__dict__["call_module"]
        else:
            tracer.__dict__["call_module"] = before
