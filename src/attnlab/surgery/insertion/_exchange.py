"""Exchange the class of a module for a subclass whose forward lets gates act.

The class has the module's own as its base and the same name; `remove` puts that one back. It also
notices what tools do to the module: a child that is exchanged, a forward that is replaced.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Proxy, Tracer

from attnlab._errors import SiteError
from attnlab.residuals.attachment import Attachment
from attnlab.residuals.classes import OWN_CLASSES, own_class
from attnlab.residuals.fx import additions_error, proxy_in, record_whole
from attnlab.residuals.padded_calls import (
    knowing_padding,
    knowing_padding_of_method,
    knowing_padding_of_part,
)
from attnlab.residuals.padding import MaskArgument, mask_arguments_of
from attnlab.surgery.insertion._additions import run_additions
from attnlab.surgery.insertion._containers import GatedContainer, GatedDict
from attnlab.surgery.insertion._hosted import ATTRIBUTE, Hosted, hosted_by, set_hosted
from attnlab.surgery.insertion._marked import may_mark, run_marked
from attnlab.surgery.insertion._outputs import each_once, moved, on_its_own, recording_gates
from attnlab.surgery.insertion._pretrained import (
    GatesOfFolder,
    refuse_saving_apart,
    saving_arguments,
    saving_gates,
)
from attnlab.surgery.insertion._ran import check_left_out, run_children, trace_children
from attnlab.surgery.insertion._script import scriptable
from attnlab.surgery.insertion._shorter import check_own_weights, shorter_network

_Forward = Callable[..., object]


def host(module: nn.Module) -> Hosted:
    """Return what `module` carries; its class is exchanged if that was nothing."""
    if isinstance(module, GraphModule):
        raise SiteError(
            "No gate can act in the forward of a torch.fx.GraphModule: torch writes that anew, and "
            "copies no module that the graph does not call. Insert into the network before it is "
            "traced: the gates become nodes of the graph."
        )
    found = hosted_by(module)
    if found is None:
        found = Hosted(children=dict(module._modules))
        set_hosted(module, found)
        if "forward" in module.__dict__:  # some tool's, from before
            module.__dict__["forward"] = _NewForward(module, module.__dict__["forward"])
            found.rebuilt = True
    if not isinstance(module, _Hosting):
        module.__class__ = _exchanged(type(module))
    return found


def settle(module: nn.Module) -> None:
    """Give `module` its own class again if it carries no gate any more."""
    found = hosted_by(module)
    if found is None or not found.empty:
        return
    set_hosted(module, None)
    replaced = module.__dict__.get("forward")
    if isinstance(replaced, _NewForward):
        module.__dict__["forward"] = replaced.forward
    # Where another tool has put its class over ours, ours stays there and does nothing.
    module.__class__ = own_class(module)


def run(
    module: nn.Module,
    hosted: Hosted,
    forward: _Forward,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> object:
    """`forward(*args, **kwargs)` of `module`, with its gates."""
    if hosted.guard is not None:
        hosted.guard.check(module)
        if hosted.guard.over_tokens:
            forward = functools.partial(knowing_padding, forward, hosted.guard.mask)
    elif module._modules != hosted.children:  # the guard has looked at those of its network
        hosted.look(module)
    if hosted.mask is not None:
        forward = functools.partial(knowing_padding_of_part, forward, hosted.mask)
    proxy = proxy_in(args)
    if proxy is None and kwargs:
        proxy = proxy_in(kwargs.values())
    if proxy is not None:
        return _traced(module, hosted, forward, proxy, args, kwargs)
    if hosted.guard is not None and hosted.guard.doubted:
        forward = functools.partial(hosted.guard.prove, module, forward)
    elif hosted.guard is not None and hosted.guard.must_show(module):
        forward = functools.partial(hosted.guard.show, module, forward)
    if hosted.rebuilt:
        forward = functools.partial(each_once, module, hosted.hooks, forward)
    elif hosted.outputs or hosted.inputs:
        forward = functools.partial(_running(), module, hosted, forward)
    if hosted.traced:
        forward = functools.partial(on_its_own, hosted.outputs, forward)
    if hosted.additions:
        if not hosted.rebuilt and may_mark(module, hosted.additions, args):
            return run_marked(module, hosted.additions, forward, args, kwargs)
        return run_additions(module, hosted.additions, forward, args, kwargs)
    return forward(*args, **kwargs)


def _running() -> Callable[..., object]:
    return trace_children if torch.compiler.is_dynamo_compiling() else run_children


def _traced(
    module: nn.Module,
    hosted: Hosted,
    forward: _Forward,
    proxy: Proxy,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> object:
    """Do the same while torch.fx traces: gates become nodes of its graph."""
    tracer = proxy.tracer
    assert isinstance(tracer, Tracer)
    if hosted.additions or hosted.inputs:
        if tracer.root is module:
            raise additions_error(module)
        return record_whole(module, proxy, args, kwargs)
    hosted.traced = True
    for hook in hosted.outputs.values():
        hook.in_graph = True
    hooks = {id(hook.host): hook for hook in hosted.outputs.values()}
    with recording_gates(tracer, hooks):
        return forward(*args, **kwargs)


class _NewForward:
    """A forward that a tool gave to one module (`module.forward = ...`), with the gates."""

    _inside = threading.local()

    def __init__(self, module: nn.Module, forward: _Forward) -> None:
        self.module = module
        self.forward = self.__wrapped__ = forward

    def __call__(self, *args: object, **kwargs: object) -> object:
        before = self.running()
        _NewForward._inside.modules = (*before, self.module)
        try:
            hosted = hosted_by(self.module)
            assert hosted is not None  # `settle` takes this object off
            return run(self.module, hosted, self.forward, args, kwargs)
        finally:
            _NewForward._inside.modules = before

    @staticmethod
    def running() -> tuple[nn.Module, ...]:
        """The modules whose new forward runs in this thread; it may call the one before it."""
        modules: tuple[nn.Module, ...] = getattr(_NewForward._inside, "modules", ())
        return modules


class _Hosting(nn.Module):
    """Mixed in front of a module's class."""

    def __setattr__(self, name: str, value: Any) -> None:
        hosted = hosted_by(self)
        if name == "forward" and hosted is not None:
            hosted.rebuilt = True
            value = _NewForward(self, value)
        super().__setattr__(name, value)
        if isinstance(value, nn.Module):
            _child_came(self, name, value)

    def add_module(self, name: str, module: nn.Module | None) -> None:
        super().add_module(name, module)
        if module is not None:
            _child_came(self, name, module)

    def named_children(self) -> Iterator[tuple[str, nn.Module]]:
        """Return all children; to the module's own forward, which runs them in a row (VitDet),
        those that it was written with."""
        row = _asked_by_forward(self)
        for name, child in super().named_children():
            if not (row and isinstance(child, Attachment)):
                yield name, child

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        hosted = hosted_by(self)
        if hosted is not None and name in hosted.children:
            hosted.rebuilt = True

    def __prepare_scriptable__(self) -> nn.Module:
        """What torch.jit.script compiles instead."""
        return self if hosted_by(self) is None else scriptable(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if type(self) not in OWN_CLASSES:
            return super().__reduce_ex__(protocol)
        return _rebuild, (OWN_CLASSES[type(self)],), self.__getstate__()


def _asked_by_forward(module: nn.Module) -> bool:
    """Whether the children of `module` are asked for by its own forward."""
    if torch.compiler.is_compiling():  # nothing else runs then
        return True
    frame = sys._getframe(2)
    while frame.f_code.co_name in ("children", "named_children") and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_name == "forward" and frame.f_locals.get("self") is module


def _child_came(keeper: nn.Module, name: str, child: nn.Module) -> None:
    """At once, not when it runs: torch.compile moves no hooks while it traces."""
    hosted = hosted_by(keeper)
    if hosted is None or hosted.children.get(name) is None:
        return
    hosted.children[name] = child
    for hooks in (hosted.outputs, hosted.inputs):
        hook = hooks.get(name)
        if hook is not None and hook.host is not child:
            hooks[name] = moved(hook, child)
            hosted.refresh()


_classes: dict[type[nn.Module], type[nn.Module]] = {}


def _exchanged(own: type[nn.Module]) -> type[nn.Module]:
    if own not in _classes:

        @functools.wraps(own.forward)  # fx and others read the forward's parameters
        def forward(self: nn.Module, *args: object, **kwargs: object) -> object:
            hosted = self.__dict__.get(ATTRIBUTE)
            if hosted is None:
                return own.forward(self, *args, **kwargs)
            # What most blocks do, said in full here: one gate acts, or some at additions.
            if len(args) == 1 and not kwargs and type(args[0]) is Tensor:
                hook = hosted.only
                if hook is not None:
                    if torch.compiler.is_dynamo_compiling():
                        hook.traced = False
                        output = own.forward(self, args[0])
                        acted = hook.traced
                        hook.traced = False  # as it was, so that no graph waits for another value
                    else:
                        calls = hook.calls
                        output = own.forward(self, args[0])
                        acted = hook.calls != calls
                        hook.traced = False
                    if not acted:
                        check_left_out(self, hosted, [hook], output, args, kwargs)
                    return output
                marks = hosted.marks
                if marks is not None and marks.may_run(self):
                    return marks.run(self, own.forward, args[0])
                simple = hosted.guard is None and hosted.mask is None
                if simple and not (hosted.rebuilt or hosted.traced):
                    many = functools.partial(own.forward, self)
                    children = hosted.outputs or hosted.inputs
                    if children and not hosted.additions:
                        return _running()(self, hosted, many, *args)
                    if not children and may_mark(self, hosted.additions, args):
                        return run_marked(self, hosted.additions, many, args, kwargs)
            if hosted.rebuilt and self in _NewForward.running():
                return own.forward(self, *args, **kwargs)
            return run(self, hosted, functools.partial(own.forward, self), args, kwargs)

        attributes: dict[str, object] = {
            "__module__": own.__module__,
            "__qualname__": own.__qualname__,
            "forward": forward,
        }
        mixins: tuple[type[nn.Module], ...] = (_Hosting,)
        if issubclass(own, nn.Sequential | nn.ModuleList):
            mixins = (_Hosting, GatedContainer)
        elif issubclass(own, nn.ModuleDict):
            mixins = (_Hosting, GatedDict)
        ours = {name for mixin in mixins for name in vars(mixin)}
        for name in dir(own):
            if name == "save_pretrained":
                attributes[name] = _saving(getattr(own, name))
            elif name not in ours and _may_run_layers(own, name):
                attributes[name] = _guarded(getattr(own, name))
        made = type(own.__name__, (*mixins, own), attributes)
        _classes[own] = made
        OWN_CLASSES[made] = own
    return _classes[own]


def mark_shortened(network: nn.Module, replaced: Mapping[str, str]) -> None:
    """Let a network of Hugging Face know which of its modules are gone, for its saving."""
    if hasattr(network, "save_pretrained"):
        hosted = host(network)
        hosted.shortened = {**hosted.shortened, **replaced}
        hosted.look(network)
    for name in replaced:
        say_when_saved(network.get_submodule(name))


def _saving(save: Callable[..., object]) -> Callable[..., object]:
    """`save_pretrained` of a network with gates, or without some of its steps."""
    with_gates = saving_gates(save, _gates_of)

    @functools.wraps(save)
    def save_pretrained(self: nn.Module, *args: object, **kwargs: object) -> object:
        hosted = hosted_by(self)
        if hosted is None or not hosted.shortened:
            return with_gates(self, *args, **kwargs)
        if hosted.guard is not None:
            raise SiteError(
                f"save_pretrained writes either the gates of {type(self).__name__} or that steps "
                f"were removed from it, and not both. Save it with attnlab.save and a description "
                f"of the network, or fold its gates first."
            )
        told = saving_arguments(save, self, *args, **kwargs)
        check_own_weights(self, told.pop("state_dict", None))
        plain: Any = shorter_network(self, hosted.shortened)
        return plain.save_pretrained(**told)

    return save_pretrained


def say_when_saved(changed: nn.Module) -> None:
    """Let a gate, a norm with one inside, or what took the place of a removed step refuse to be
    written into a folder of Hugging Face by a network that does not know of it."""
    if _refuse_unless_known not in changed._state_dict_pre_hooks.values():
        changed.register_state_dict_pre_hook(_refuse_unless_known)


def _refuse_unless_known(changed: nn.Module, prefix: str, keep_vars: bool) -> None:
    del prefix, keep_vars
    refuse_saving_apart(changed, _knows)


def _knows(network: nn.Module, changed: nn.Module) -> bool:
    """Whether a folder of `network` says of `changed` that it is there."""
    hosted = hosted_by(network)
    if hosted is None:
        return False
    guarded = [] if hosted.guard is None else [*hosted.guard.gates, *hosted.guard.norms.values()]
    stand_ins = [network.get_submodule(name) for name in hosted.shortened]
    return any(changed is each for each in (*guarded, *stand_ins))


def _gates_of(network: nn.Module) -> GatesOfFolder | None:
    """How the gates came into `network`, if it carries any."""
    hosted = hosted_by(network)
    if hosted is None or hosted.guard is None:
        return None
    gates = [name for name, each in network.named_modules() if isinstance(each, Attachment)]
    return GatesOfFolder(hosted.guard.insertions, gates)


def _may_run_layers(own: type[nn.Module], name: str) -> bool:
    """Whether a network may be run by this method of its class, without its forward."""
    public = not name.startswith("_") and not hasattr(nn.Module, name)
    return public and inspect.isfunction(inspect.getattr_static(own, name))


def _guarded(method: Callable[..., object]) -> Callable[..., object]:
    """A method by which a network may be run without its forward: `forward_features`, `encode`,
    `get_image_features`."""
    # Whoever asks these for what they make runs layers after they have returned.
    later = inspect.isgeneratorfunction(method) or inspect.iscoroutinefunction(method)
    mask = _mask_of(method)

    @functools.wraps(method)
    def guarded(self: nn.Module, *args: object, **kwargs: object) -> object:
        hosted = hosted_by(self)
        guard = None if hosted is None else hosted.guard
        if guard is None:
            return method(self, *args, **kwargs)
        if not (later or _any_tensor(args) or _any_tensor(kwargs.values())):
            return guard.watch(self, method, *args, **kwargs)
        guard.check(self)
        run: _Forward = functools.partial(method, self)
        if guard.over_tokens:
            run = functools.partial(knowing_padding_of_method, run, mask)
        if guard.doubted:
            return guard.prove_part(self, method.__name__, run, *args, **kwargs)
        return run(*args, **kwargs)

    return guarded


def _mask_of(method: Callable[..., object]) -> MaskArgument | None:
    """The argument by which a method is told of padding."""
    signature = inspect.signature(method)
    own = list(signature.parameters.values())[1:]  # without the network itself
    return next(iter(mask_arguments_of(signature.replace(parameters=own))), None)


def _any_tensor(given: Iterable[object]) -> bool:
    """Whether a tensor is among these, or in a row or a mapping among these."""
    for each in given:
        inside = tuple(each.values()) if isinstance(each, Mapping) else each
        several = inside if isinstance(inside, list | tuple) else (inside,)
        if any(isinstance(one, Tensor) for one in several):
            return True
    return False


def _rebuild(own: type[nn.Module]) -> nn.Module:
    made = _exchanged(own)
    return made.__new__(made)
