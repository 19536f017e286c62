"""Put an attachment on its host and take it off again, with every original key kept.

Two ways. Behind a module's output: a forward hook. At an addition: the class of the module that
makes the addition is exchanged for a subclass whose forward runs under a small function mode that
recognises the addition. Both survive deepcopy, pickle, torch.compile and torch.export.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attnlab._errors import SiteError
from attnlab.insert.attachment import Attachment
from attnlab.insert.step import Step
from attnlab.record.operations import is_same_shape_addition

_SITES = "_attnlab_additions"


def attach(model: nn.Module, attachment: Attachment) -> None:
    """Register `attachment` on its home in `model` and let it act at its site."""
    site = attachment.site
    home = model.get_submodule(site.home)
    attribute = _free_attribute(home, site.attribute)
    home.add_module(attribute, attachment)
    if site.host == "output":
        hidden = any(_SITES in ancestor.__dict__ for ancestor in _ancestors(model, site.module))
        hook = OutputHook(attachment, hidden)
        model.get_submodule(site.module).register_forward_hook(hook)
    else:
        assert site.step is not None
        _gate_addition(model.get_submodule(site.module), attachment, site.step)


def attachments(model: nn.Module) -> Iterator[tuple[str, Attachment]]:
    """The attachments in `model` with their module names."""
    for name, module in model.named_modules():
        if isinstance(module, Attachment):
            yield name, module


def remove(model: nn.Module, keep: frozenset[str] = frozenset()) -> None:
    """Take the attachments off `model`, all but those named in `keep`."""
    gone = {id(attachment) for name, attachment in attachments(model) if name not in keep}
    for module in list(model.modules()):
        for key, hook in list(module._forward_hooks.items()):
            if isinstance(hook, OutputHook) and id(hook.attachment) in gone:
                del module._forward_hooks[key]
        additions = module.__dict__.get(_SITES)
        if additions is not None:
            additions.discard(gone)
            if not additions.gated:
                del module.__dict__[_SITES]
                module.__class__ = type(module).__mro__[2]
        for name, child in list(module.named_children()):
            if id(child) in gone:
                delattr(module, name)


def _free_attribute(home: nn.Module, wanted: str) -> str:
    """`wanted`, or with a letter behind it where a gate is already there."""
    for suffix in ("", *"bcdefghijklmnopqrstuvwxyz"):
        name = wanted + (f"_{suffix}" if suffix else "")
        if name not in home._modules:
            return name
    raise SiteError(f"{type(home).__name__} already carries 26 gates at {wanted!r}.")


def _ancestors(model: nn.Module, name: str) -> Iterator[nn.Module]:
    parts = name.split(".") if name else []
    for length in range(len(parts)):
        yield model.get_submodule(".".join(parts[:length]))


class OutputHook:
    """Forward hook that gates a module's output.

    `hidden`: the host lies inside a module whose additions are counted; the gate's own additions
    must not be.
    """

    def __init__(self, attachment: Attachment, hidden: bool) -> None:
        self.attachment = attachment
        self.hidden = hidden

    def __call__(self, module: nn.Module, arguments: Any, output: Tensor) -> Tensor:
        del module, arguments
        if not self.hidden:
            return self.attachment(output)
        with torch._C.DisableTorchFunction():
            return self.attachment(output)


@dataclass
class _Gated:
    """An addition that carries gates."""

    step: Step
    attachments: list[Attachment]


class _Additions:
    """The additions of a module that carry gates."""

    def __init__(self) -> None:
        self.gated: list[_Gated] = []

    def add(self, step: Step, attachment: Attachment) -> None:
        for gated in self.gated:
            # The owner is called otherwise where the network was put into another in between.
            if replace(gated.step.key, owner=step.owner) == step.key:
                gated.attachments.append(attachment)
                return
        self.gated.append(_Gated(step, [attachment]))

    def discard(self, gone: set[int]) -> None:
        """Forget the attachments with these ids."""
        for gated in self.gated:
            gated.attachments = [a for a in gated.attachments if id(a) not in gone]
        self.gated = [gated for gated in self.gated if gated.attachments]


class _AdditionMode(TorchFunctionMode):
    """Counts, for each gated addition, those that could be it, and gates the branch of the one.

    `seen` is a list outside the mode: torch.compile lets no one read a mode's attributes.
    """

    def __init__(self, additions: _Additions, seen: list[int]) -> None:
        super().__init__()
        self.additions = additions
        self.seen = seen

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        del types
        if not is_same_shape_addition(function, args, kwargs):
            return function(*args, **(kwargs or {}))
        found = None
        for number, gated in enumerate(self.additions.gated):
            if gated.step.key.could_be(args[0].shape):
                if self.seen[number] == gated.step.key.addition:
                    found = gated
                self.seen[number] += 1
        if found is None:
            return function(*args)
        step = found.step
        branch, shortcut = args[step.branch_operand], args[1 - step.branch_operand]
        with torch._C.DisableTorchFunction():
            for attachment in found.attachments:
                branch = attachment(branch, shortcut)
        return shortcut.add_(branch) if step.overwrites else shortcut + branch


class _GatedAdditions(nn.Module):
    """Mixed in front of a host's class: its forward runs with its additions watched."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        additions: _Additions = self.__dict__[_SITES]
        seen = [0] * len(additions.gated)
        with _AdditionMode(additions, seen):
            output = super().forward(*args, **kwargs)
        for count, gated in zip(seen, additions.gated, strict=True):
            if count != gated.step.owner_additions:
                raise SiteError(
                    f"The forward of {type(self).__name__} made {count} additions like the gated "
                    f"one, of which {gated.step.owner_additions} were seen at insertion, so the "
                    f"gated one cannot be told. Insert again with an example that takes this path "
                    f"(example=...), or choose other sites with where=."
                )
        return output

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _rebuild, (type(self).__mro__[2],), self.__dict__


_classes: dict[type[nn.Module], type[nn.Module]] = {}


def _gated_class(host: type[nn.Module]) -> type[nn.Module]:
    if host not in _classes:
        _classes[host] = type(
            host.__name__,
            (_GatedAdditions, host),
            {"__module__": host.__module__, "__qualname__": host.__qualname__},
        )
    return _classes[host]


def _rebuild(host: type[nn.Module]) -> nn.Module:
    gated = _gated_class(host)
    return gated.__new__(gated)


def _gate_addition(owner: nn.Module, attachment: Attachment, step: Step) -> None:
    if _SITES not in owner.__dict__:
        owner.__dict__[_SITES] = _Additions()
        owner.__class__ = _gated_class(type(owner))
        for module in owner.modules():
            for hook in module._forward_hooks.values():
                if isinstance(hook, OutputHook):
                    hook.hidden = True
    owner.__dict__[_SITES].add(step, attachment)
