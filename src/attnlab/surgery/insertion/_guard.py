"""A network's guard: before each run, every gate that was inserted is still there and acts.

What a block can see, it sees itself (`_outputs`, `_additions`). What it cannot see is that it was
exchanged for another, or taken out. The network that gates were inserted into looks for that: it
watches every name by which a gate is reached, and after a change of one, a run has to show that all
gates act.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import repeat
from operator import attrgetter

import torch
from torch import nn
from torch._compile import _disable_dynamo
from torch.nn.modules.module import register_module_forward_pre_hook

from attnlab._errors import GateLostError, SiteError
from attnlab.gates import InstanceEnhancementBatchNorm
from attnlab.residuals.adapters import mark_adapters
from attnlab.residuals.attachment import Attachment
from attnlab.residuals.classes import what_became_of
from attnlab.residuals.example import running_eagerly
from attnlab.residuals.listing import list_modules
from attnlab.residuals.padding import MaskArgument
from attnlab.surgery.insertion._effect import show_effects
from attnlab.surgery.insertion._hosted import Hosted, hosted_by
from attnlab.surgery.insertion._outputs import (
    HOOK,
    WHAT_TO_DO,
    OutputHook,
    ReadHook,
    gate_names,
    hooks_at,
)
from attnlab.surgery.insertion._pretrained import Insertion

_children = attrgetter("_modules")
_state = attrgetter("__dict__")


class _Look:
    """The children and forwards of some modules, and the hooks with gates, as they are now.

    Before each run all of it is compared with what it was: by C's loops, since Python's took longer
    than a gate. What a gate is reached by is compared name by name only if something changed.
    """

    def __init__(self, modules: Sequence[nn.Module], hooks: Sequence[OutputHook]) -> None:
        self.modules = tuple(modules)
        self.slots = tuple(hook.slots(hook.host) for hook in hooks)
        self.children = [dict(module._modules) for module in modules]
        self.forwards = self._forwards()
        self.hooks = list(hooks)

    def _forwards(self) -> list[object]:
        return list(map(dict.get, map(_state, self.modules), repeat("forward")))

    def still_so(self) -> bool:
        """Whether children, hooks and forwards are as they were when this was made."""
        return (
            list(map(_children, self.modules)) == self.children
            and list(map(dict.get, self.slots, repeat(HOOK))) == self.hooks
            and self._forwards() == self.forwards
        )


class Guard:
    """The gates of a network, the modules in which they act, and the way there."""

    def __init__(self) -> None:
        self.gates: list[Attachment] = []
        self.norms: dict[str, nn.Module] = {}
        """Norms with a gate inside (IEBN), by the names that they had at insertion."""
        self.insertions: list[Insertion] = []
        """How the gates came in, in their order."""
        self.looked = False
        """Whether what follows was found since the last gate came."""
        self.carried: list[Hosted] = []
        self.carriers: list[nn.Module] = []
        """The modules that carry something; they look after all their children."""
        self.ways: list[tuple[nn.Module, str]] = []
        """Modules, with the names of those children that lead to a gate ..."""
        self.ends: list[nn.Module | None] = []
        """... and those children."""
        self.passed: list[nn.Module] = []
        """The modules on these ways ..."""
        self.forwards: list[object] = []
        """... and the forwards that tools gave to single ones of them."""
        self.doubted = False
        """Whether the ways changed since a run showed that every gate acts."""
        self.shown = False
        """Whether a run in training showed that the output depends on every gate."""
        self.last: _Look | None = None
        """How all of this was when it was last found to be right."""

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "last": None}  # a copy looks for itself

    adapters: Sequence[str] = ()
    """The names of the adapters (peft) that were last seen in the network."""
    over_tokens = False
    """Whether a gate looks over all tokens, so that the padding of a call must be known."""
    mask: MaskArgument | None = None
    """The argument of the network that tells of padding."""

    def add(self, gate: Attachment) -> None:
        """Guard one more gate, and the norms in it that have a gate inside."""
        self.gates.append(gate)
        self.add_norms(gate, gate.name)

    def add_norms(self, module: nn.Module, path: str = "") -> None:
        """Guard all norms in `module`, which is named `path`, that have a gate inside."""
        for name, each in module.named_modules(prefix=path):
            if isinstance(each, InstanceEnhancementBatchNorm):
                self.norms[name] = each
        self.looked = False

    def check(self, network: nn.Module) -> None:
        """Raise `GateLostError` unless all gates act; in a network that was re-arranged too."""
        if "_is_replica" in network.__dict__:
            raise SiteError(
                "nn.DataParallel runs copies of a network's modules without their gates. Use "
                "nn.parallel.DistributedDataParallel."
            )
        adapted = network.__dict__.get("peft_config")
        if adapted is not None and list(adapted) != self.adapters:
            self.adapters = list(adapted)
            mark_adapters(network)
        if torch.compiler.is_compiling():
            ways = self.ways_if_right(network)
            if ways:
                _bind(network, ways)
                return
        self._check(network)

    def _check(self, network: nn.Module) -> None:
        if self.looked and self.last is not None and not torch.compiler.is_compiling():
            if self.last.still_so():
                return
            self.last = None
        children = [hosted.children for hosted in self.carried]
        if not self.looked:
            self.look(network)
        elif self._ways_changed():
            self.doubted = True
            self.look(network)
        elif [carrier._modules for carrier in self.carriers] != children or not self._hooked():
            self.look(network)
        if not torch.compiler.is_compiling():
            hooks = [hook for hosted in self.carried for _, hook in hosted.hooks]
            modules = {id(each): each for each in (*self.passed, *self.carriers)}
            self.last = _Look(list(modules.values()), hooks)

    def ways_if_right(self, network: nn.Module) -> str:
        """The names, one in a line, of every way to a gate, if all gates act; else nothing.

        While torch.compile traces, this runs outside of the graph, and its answer is a constant.
        """
        try:
            self._check(network)
        except SiteError:
            return ""
        names = {id(module): name for name, module in network.named_modules()}
        ways = (f"{names[id(parent)]}.{name}" for parent, name in self.ways)
        return "\n".join(way.removeprefix(".") for way in ways)

    # What torch.compiler.assume_constant_result does; that would import torch._dynamo, as below.
    ways_if_right._dynamo_marked_constant = True  # type: ignore[attr-defined]

    def doubt(self) -> None:
        """Notice before the ways are found anew if they changed: a module that took the place of
        another may keep a gate and not run it."""
        self.doubted = self.doubted or self._ways_changed()

    def _ways_changed(self) -> bool:
        """Whether a module on a way to a gate is another than before, or has another forward."""
        return [parent._modules.get(name) for parent, name in self.ways] != self.ends or [
            module.__dict__.get("forward") for module in self.passed
        ] != self.forwards

    def _hooked(self) -> bool:
        """Some tools clear all hooks."""
        for hosted in self.carried:
            for _, hook in hosted.hooks:
                if hook.slots(hook.host).get(HOOK) is not hook:
                    return False
        return True

    def look(self, network: nn.Module) -> None:
        """Let gates follow the modules where they act, and find all gates wherever they are now."""
        modules = [module for _, module in list_modules(network)]
        for module in modules:
            hosted = hosted_by(module)
            if hosted is not None:
                hosted.look(module)
        lost = lost_gates(modules, self.gates)
        if lost:
            raise _lost_error(network, lost)
        for name in self._lost_norms(modules):
            raise _lost_norm_error(network, name)
        self._find_ways(modules)

    def without(self, network: nn.Module, gone: Collection[int]) -> Guard | None:
        """The guard when gates with these ids were taken off; None if there is nothing to guard."""
        inside = {id(m) for gate in self.gates if id(gate) in gone for m in gate.modules()}
        self.norms = {name: norm for name, norm in self.norms.items() if id(norm) not in inside}
        self.gates = [gate for gate in self.gates if id(gate) not in gone]
        if not self.gates and not self.norms:
            return None
        self.look(network)
        return self

    def forget_lost_norms(self, network: nn.Module) -> None:
        """Go on without the norms with a gate inside that are not in `network` any more."""
        for name in self._lost_norms(list(network.modules())):
            del self.norms[name]

    def _lost_norms(self, modules: Sequence[nn.Module]) -> list[str]:
        there = {id(module) for module in modules}
        return [name for name, norm in self.norms.items() if id(norm) not in there]

    def _find_ways(self, modules: Sequence[nn.Module]) -> None:
        # New lists, not changed ones: other threads may be reading the old.
        self.carriers = [module for module in modules if hosted_by(module) is not None]
        self.carried = [hosted for each in self.carriers if (hosted := hosted_by(each)) is not None]
        ends = [*self.gates, *self.norms.values(), *self.carriers]
        ways = _ways(modules, {id(each) for each in (*ends, *self._hosts_with_two_names(modules))})
        self.ways = ways
        self.ends = [parent._modules[name] for parent, name in ways]
        self.passed = list({id(parent): parent for parent, _ in ways}.values())
        self.forwards = [module.__dict__.get("forward") for module in self.passed]
        self.looked = True
        self.shown = False

    def _hosts_with_two_names(self, modules: Sequence[nn.Module]) -> list[nn.Module]:
        """A gate follows the one name of its host that it knows, and the other may be the one that
        runs. Hosts with one name need no watching, so that to exchange a norm costs nothing."""
        names = Counter(id(child) for module in modules for child in module._modules.values())
        hooks = [hook for hosted in self.carried for _, hook in hosted.hooks]
        return [hook.host for hook in hooks if names[id(hook.host)] > 1]

    def must_show(self, network: nn.Module) -> bool:
        """Return whether this run has to show that the output depends on every gate: the first in
        training with gradients since gates or modules changed."""
        if not network.training or torch.compiler.is_compiling():
            return False
        return not self.shown and torch.is_grad_enabled()

    def show(
        self, network: nn.Module, forward: Callable[..., object], *args: object, **kwargs: object
    ) -> object:
        """`forward(*args, **kwargs)` of `network`, whose output has to depend on every gate."""
        gates = [gate for gate in self.gates if not gate.removed]
        output = show_effects(network, gates, forward, *args, **kwargs)
        self.shown = True
        return output

    # Hooks come and go in it, so it is not compiled. `torch.compiler.disable` would import
    # torch._dynamo with this file: 0.85 s of every command. This does so in the first call.
    @_disable_dynamo
    def prove(
        self, network: nn.Module, forward: Callable[..., object], *args: object, **kwargs: object
    ) -> object:
        """`forward(*args, **kwargs)` of `network`, in which every gate has to act.

        That all gates are still in the network does not say that they run: a module may have two
        names, or be kept by another that does not call it. Only a run shows it.
        """
        output, lost, lost_norms = self._observed(forward, args, kwargs)
        if lost:
            raise _lost_error(network, lost, ran=True)
        for name in lost_norms:
            raise _lost_norm_error(network, name)
        self.doubted = False
        return output

    @_disable_dynamo
    def prove_part(
        self,
        network: nn.Module,
        name: str,
        method: Callable[..., object],
        *args: object,
        **kwargs: object,
    ) -> object:
        """`method(*args, **kwargs)`, the method `name` of `network`, which runs it or a part of it.
        After a change of the ways its answer is handed out if all gates acted."""
        if not self.doubted or self in _proofs.running:
            return method(*args, **kwargs)
        output, lost, lost_norms = self._observed(method, args, kwargs)
        if self.doubted and (lost or lost_norms):  # else the whole network ran in it
            raise _not_shown_error(network, name, lost, lost_norms)
        self.doubted = False
        return output

    def watch(
        self, network: nn.Module, method: Callable[..., object], *args: object, **kwargs: object
    ) -> object:
        """`method(network, *args, **kwargs)`, which was given no tensor. Most such methods run no
        layer; one that does (of a file, of an image) is held to what `prove_part` asks for."""
        if torch.compiler.is_compiling() or self in _proofs.running:
            return method(network, *args, **kwargs)
        try:
            self.check(network)
            right = not self.doubted
        except GateLostError:
            right = False
        if right:
            return method(network, *args, **kwargs)
        thread, ran = threading.get_ident(), False

        def note(module: nn.Module, arguments: object) -> None:
            nonlocal ran
            del arguments
            if ran or threading.get_ident() != thread or module is network:
                return  # the network looks for itself
            if any(module is each for each in network.modules()):
                self.check(network)
                ran = True

        # At all modules: the method may put others into the network.
        with register_module_forward_pre_hook(note):
            output, gates, norms = self._observed(partial(method, network), args, kwargs)
        if ran and self.doubted and (gates or norms):
            raise _not_shown_error(network, method.__name__, gates, norms)
        self.doubted = self.doubted and not ran
        return output

    def _observed(
        self, forward: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[object, list[Attachment], list[str]]:
        """The answer of `forward`, the gates that did not act in it, and the names of such norms
        with a gate inside."""
        gates = [gate for gate in self.gates if not gate.removed]
        acted: set[int] = set()

        def note(module: nn.Module, arguments: object) -> None:
            del arguments
            acted.add(id(module))

        before = _proofs.running
        with ExitStack() as hooks:
            # A block that is compiled by itself may have a graph of another such run, whose hooks
            # noted into another set.
            hooks.enter_context(running_eagerly())
            for each in (*gates, *self.norms.values()):
                hooks.enter_context(each.register_forward_pre_hook(note))
            hooks.callback(setattr, _proofs, "running", before)
            _proofs.running = (*before, self)
            output = forward(*args, **kwargs)
        lost = [gate for gate in gates if id(gate) not in acted]
        return output, lost, [name for name, norm in self.norms.items() if id(norm) not in acted]


class _Proofs(threading.local):
    """The guards for which a run of this thread shows that all gates act."""

    running: tuple[Guard, ...] = ()


_proofs = _Proofs()


def _outside_of_graphs(function: Callable[..., object]) -> None:
    """Let torch.compile run a function and all that it calls as they are, unless they are traced as
    part of a graph.

    Past its limit of graphs for one forward, torch runs that forward as it is and compiles what it
    calls. A check that is compiled alone looked once, and its answer was kept: a forward that was
    given to a container later was not seen.
    """
    frames = torch._C._dynamo.eval_frame
    skip = frames._FrameAction.SKIP
    frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))


_outside_of_graphs(Guard.check)


def _bind(network: nn.Module, ways: str) -> None:
    """Let a compiled graph hold only for these very modules and their forwards.

    torch.compile guards what is read here: each module on a way once, by the name by which the
    network runs it. Tracing the comparison instead guarded every list of the guard, and each module
    by up to three names: 32 µs of a call of ResNet-20, a fortieth of it.
    """
    for way in ways.split("\n"):
        module = network
        for name in way.split("."):
            module.__dict__.get("forward")
            module = module._modules[name]  # type: ignore[assignment]
        id(module)  # a guard on what it is, not only on its type


def _ways(modules: Sequence[nn.Module], ends: Collection[int]) -> list[tuple[nn.Module, str]]:
    """Every one of `modules`, with the name of every child, that leads to one of these ends."""
    parents: dict[int, list[tuple[nn.Module, str]]] = defaultdict(list)
    for module in modules:
        for name, child in module._modules.items():
            parents[id(child)].append((module, name))
    ways: list[tuple[nn.Module, str]] = []
    reached: set[int] = set()
    waiting = list(ends)
    while waiting:
        end = waiting.pop()
        if end not in reached:
            reached.add(end)
            ways += parents[end]
            waiting += [id(parent) for parent, _ in parents[end]]
    return ways


def lost_gates(modules: Sequence[nn.Module], gates: list[Attachment]) -> list[Attachment]:
    """Return those of `gates` that are not among the modules of a network any more, or act in
    none."""
    there = {id(module) for module in modules}
    acting = {id(gate) for module in modules for gate in acting_in(module)}
    return [
        gate
        for gate in gates
        if not gate.removed and not (id(gate) in there and id(gate) in acting)
    ]


def acting_in(module: nn.Module) -> Iterator[Attachment]:
    """The gates that act at the additions of `module`, at itself, or at a child."""
    hosted = hosted_by(module)
    if hosted is not None:
        for gated in hosted.additions:
            yield from gated.attachments
        for name, kept in hosted.hooks:
            if module._modules.get(name) is not None and not isinstance(kept, ReadHook):
                yield from kept.attachments
    for hook in hooks_at(module):
        if hook.live and not isinstance(hook, ReadHook):
            yield from hook.attachments


def _lost_norm_error(network: nn.Module, name: str) -> GateLostError:
    return GateLostError(
        f"The norm {name!r} had a gate inside (iebn), but it was {what_became_of(network, name)} "
        f"after insertion, and {type(network).__name__} would answer without the gate. {WHAT_TO_DO}"
    )


def _lost_error(network: nn.Module, lost: list[Attachment], *, ran: bool = False) -> GateLostError:
    first = lost[0]
    more = f", and {len(lost) - 1} more are lost as well" if len(lost) > 1 else ""
    what = "exchanged for another"
    if ran:  # it is still in the network, and did not act
        what = "exchanged, or given another forward,"
    return GateLostError(
        f"The {gate_names([first])} acted {first.site.at}, but a module on the way there was "
        f"{what} after insertion, and {type(network).__name__} would answer without the "
        f"gate{more}. {WHAT_TO_DO}"
    )


def _not_shown_error(
    network: nn.Module, method: str, lost: list[Attachment], norms: list[str]
) -> GateLostError:
    names = [repr(each.name) for each in lost] + [f"that in {name!r}" for name in norms]
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return GateLostError(
        f"A module on the way to a gate was exchanged after insertion, and this call of "
        f"{type(network).__name__}.{method} did not show that all gates still act: the gate "
        f"{names[0]}{more} did not. Call the network itself once, network(...), which shows it or "
        f"says what is lost."
    )
