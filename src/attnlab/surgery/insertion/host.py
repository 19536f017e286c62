"""Put an attachment on its host and take it off again, with every original key kept.

Two ways. At a module's output or input: a hook that follows the module's name (`_outputs`). At an
addition: a small function mode that recognises the addition (`_additions`). The class of the module
that runs the host or makes the addition is exchanged (`_exchange`), and so is that of the
network, which knows all its gates (`_guard`): whatever a tool makes of the network afterwards, its
gates act or it does not run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from torch import nn
from torch.optim import Optimizer

from attnlab._errors import SiteError
from attnlab.residuals.attachment import Attachment, HeadsAttachment, OwnedAttachment
from attnlab.residuals.listing import list_modules
from attnlab.residuals.padding import mask_argument
from attnlab.surgery.history import forget_insertions
from attnlab.surgery.insertion._additions import discard, host_at
from attnlab.surgery.insertion._exchange import host, say_when_saved, settle
from attnlab.surgery.insertion._guard import Guard, acting_in, lost_gates
from attnlab.surgery.insertion._hosted import hosted_by
from attnlab.surgery.insertion._marked import MARK, MarkHook
from attnlab.surgery.insertion._norms import plain_norms
from attnlab.surgery.insertion._outputs import (
    HOOK,
    InputHook,
    OutputHook,
    ReadHook,
    hooks_at,
    host_at_child,
)
from attnlab.surgery.insertion._pretrained import Insertion
from attnlab.surgery.optimizer import check_optimizer, following


def hang(network: nn.Module, attachment: Attachment) -> None:
    """Register `attachment` on its home in `network` and let it act at its site."""
    home = network.get_submodule(attachment.site.home)
    attribute = _free_attribute(home, attachment.site.attribute)
    attachment.site = site = replace(attachment.site, attribute=attribute)
    home.add_module(attribute, attachment)
    say_when_saved(attachment)
    at_home = hosted_by(home)
    if at_home is not None:
        at_home.children[attribute] = attachment
    if site.host == "output":
        _hook(network, site.module, attachment, OutputHook)
    elif site.host == "input":
        if isinstance(attachment, HeadsAttachment):
            _hook(network, site.reader, attachment, ReadHook)
        _hook(network, site.module, attachment, InputHook)
    else:
        assert site.step is not None
        module = network.get_submodule(site.module)
        carried = host(module)
        host_at(module, carried.additions, site.step, attachment)
        carried.refresh()
        for each in module.modules():
            for inner in hooks_at(each):
                inner.hidden = True
    guard = _guard(network)
    guard.add(attachment)
    if attachment.over_tokens:
        guard.over_tokens = True
        guard.mask = mask_argument(network)
        for part in list(_on_the_way(network, site.module))[1:]:
            _tell_of_padding(part)


def _tell_of_padding(part: nn.Module) -> None:
    """Let gates in a part of a network know the padding of a call of that part alone."""
    argument = mask_argument(part)
    if argument is not None:
        carried = host(part)
        carried.mask = argument
        carried.look(part)


def _hook(network: nn.Module, name: str, attachment: Attachment, kind: type[OutputHook]) -> None:
    """Let `attachment` act at the module `name`."""
    path, _, child = name.rpartition(".")
    keeper = network.get_submodule(path)
    carried = host(keeper)
    hooks = carried.inputs if issubclass(kind, InputHook) else carried.outputs
    host_at_child(keeper, hooks, child, attachment, kind)
    carried.refresh()
    hook = hooks[child]
    hook.hidden = hook.hidden or any(_adds(each) for each in _on_the_way(network, path))


def guard_norms(network: nn.Module) -> None:
    """Let `network` look after its norms with a gate inside (IEBN), as after its attachments."""
    guard = _guard(network)
    guard.add_norms(network)
    for norm in guard.norms.values():
        say_when_saved(norm)


def remember(network: nn.Module, insertion: Insertion) -> None:
    """Keep how gates came into `network`, for folders of Hugging Face."""
    _guard(network).insertions.append(insertion)


def attachments(model: nn.Module) -> Iterator[tuple[str, Attachment]]:
    """The attachments in `model` with their module names."""
    for name, module in list_modules(model):
        if isinstance(module, Attachment):
            yield name, module


def remove(
    network: nn.Module, *, only_lost: bool = False, optimizer: Optimizer | None = None
) -> None:
    """Take all gates off `network` itself; output, state-dict keys and classes are as before.

    With `only_lost=True` only those go that do not act any more, because a tool took away the
    modules that they acted on; the others stay, and the network runs again. With `optimizer=`, the
    parameters of the gates leave that optimizer, with their momentum.
    """
    check_optimizer(optimizer, inplace=True)
    with following(optimizer, network):
        found = _all_gates(network)
        gone = lost_gates(list(network.modules()), found) if only_lost else found
        if not only_lost:
            plain_norms(network)
        for module in network.modules():
            hosted = hosted_by(module)
            if hosted is not None and hosted.guard is not None:
                hosted.guard.forget_lost_norms(module)
        _remove(network, found, {id(gate) for gate in gone})
        if not only_lost:
            forget_insertions(network)


def remove_attachments(network: nn.Module, keep: Collection[str] = ()) -> None:
    """Take the attachments off `network` itself, all but those named in `keep`.

    Names are those of `attachments`. Norms with a gate inside (IEBN) stay.
    """
    kept = {id(gate) for name, gate in attachments(network) if name in keep} if keep else set()
    found = _all_gates(network)
    _remove(network, found, {id(gate) for gate in found} - kept)


def _remove(network: nn.Module, found: list[Attachment], gone: set[int]) -> None:
    _hand_on([gate for gate in found if id(gate) not in gone], gone)
    for gate in found:
        gate.removed = gate.removed or id(gate) in gone
    modules = [module for _, module in list_modules(network)]
    for module in modules:
        hosted = hosted_by(module)
        if hosted is not None and hosted.guard is not None:
            hosted.guard.doubt()
    for module in modules:
        _take_off(module, gone)
    for module in modules:
        hosted = hosted_by(module)
        if hosted is not None and hosted.guard is not None:
            hosted.guard = hosted.guard.without(module, gone)
        if hosted is not None and hosted.mask is not None:
            inside = (each for each in module.modules() if isinstance(each, Attachment))
            if not any(each.over_tokens for each in inside):
                hosted.mask = None
        settle(module)


def _hand_on(kept: list[Attachment], gone: set[int]) -> None:
    """Give a shared gate whose owner goes to the first attachment that stays."""
    heirs: dict[int, OwnedAttachment] = {}
    for gate in kept:
        if isinstance(gate, OwnedAttachment) and id(gate.owner) in gone:
            before = id(gate.owner)
            gate.take_over(heirs.get(before))
            heirs.setdefault(before, gate)


def _guard(network: nn.Module) -> Guard:
    hosted = host(network)
    if hosted.guard is None:
        hosted.guard = Guard()
    return hosted.guard


def _take_off(module: nn.Module, gone: set[int]) -> None:
    hosted = hosted_by(module)
    if hosted is not None:
        discard(hosted.additions, gone)
        for _, kept in hosted.hooks:
            kept.discard(gone)
        hosted.outputs = {name: h for name, h in hosted.outputs.items() if h.attachments}
        hosted.inputs = {name: h for name, h in hosted.inputs.items() if h.attachments}
    for hook in list(hooks_at(module)):
        hook.discard(gone)
        if not hook.attachments:
            del hook.slots(module)[HOOK]
    marks = module._forward_hooks.get(MARK)
    if isinstance(marks, MarkHook) and not marks.addition.attachments:
        del module._forward_hooks[MARK]
    for name, child in list(module._modules.items()):
        if id(child) in gone:
            del module._modules[name]
            if hosted is not None:
                hosted.children.pop(name, None)


def _all_gates(model: nn.Module) -> list[Attachment]:
    """Return the gates in `model`, those that act in it, and those that its guards look for."""
    modules = [module for _, module in list_modules(model)]
    found = {id(each): each for each in modules if isinstance(each, Attachment)}
    for module in modules:
        found.update((id(gate), gate) for gate in acting_in(module))
        hosted = hosted_by(module)
        if hosted is not None and hosted.guard is not None:
            found.update((id(gate), gate) for gate in hosted.guard.gates)
    return list(found.values())


def _free_attribute(home: nn.Module, wanted: str) -> str:
    """`wanted`, or with a letter after it where a gate is already there."""
    for suffix in ("", *"bcdefghijklmnopqrstuvwxyz"):
        name = wanted + (f"_{suffix}" if suffix else "")
        if name not in home._modules:
            return name
    raise SiteError(f"{type(home).__name__} already carries 26 gates at {wanted!r}.")


def _on_the_way(network: nn.Module, name: str) -> Iterator[nn.Module]:
    """The modules from `network` to that named `name`, both included."""
    module = network
    yield module
    for part in name.split(".") if name else ():
        module = module.get_submodule(part)
        yield module


def _adds(module: nn.Module) -> bool:
    hosted = hosted_by(module)
    return hosted is not None and bool(hosted.additions)
