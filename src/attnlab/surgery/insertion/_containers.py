"""Containers that carry gates: their children are those that they had, in number and in order.

`nn.Sequential` runs, counts and slices all its children, and both it and `nn.ModuleList` number
them anew when one goes or comes. A gate that hangs on one is none of these children, and a gate
that acts after one of them stays with it. For `nn.ModuleDict` the first is enough.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from typing import Any

from torch import nn

from attnlab._errors import SiteError
from attnlab.residuals.attachment import Attachment
from attnlab.residuals.classes import own_class
from attnlab.surgery.insertion._hosted import hosted_by, set_hosted
from attnlab.surgery.insertion._outputs import gate_names


class GatedContainer(nn.Module):
    """Mixed in front of `nn.Sequential` and `nn.ModuleList`."""

    def __iter__(self) -> Iterator[nn.Module]:
        return iter(_own(self).values())

    def __len__(self) -> int:
        return len(_own(self))

    def __getitem__(self, index: Any) -> Any:
        return _plain_container(self)[index]

    def __setitem__(self, index: int, module: nn.Module) -> None:
        setattr(self, list(_own(self))[index], module)

    def __delitem__(self, index: int | slice) -> None:
        rest = _plain_container(self)
        del rest[index]
        _renumber(self, rest)

    def insert(self, index: int, module: nn.Module) -> Any:
        rest = _plain_container(self)
        rest.insert(index, module)
        _renumber(self, rest)
        return self


class GatedDict(nn.Module):
    """Mixed in front of `nn.ModuleDict`."""

    def __iter__(self) -> Iterator[str]:
        return iter(_own(self))

    def __len__(self) -> int:
        return len(_own(self))

    def keys(self) -> KeysView[str]:
        return _own(self).keys()

    def items(self) -> ItemsView[str, nn.Module]:
        return _own(self).items()

    def values(self) -> ValuesView[nn.Module]:
        return _own(self).values()


def _own(container: nn.Module) -> dict[str, nn.Module]:
    """The children but for gates, in their order."""
    return {
        name: child
        for name, child in container._modules.items()
        if child is not None and not isinstance(child, Attachment)
    }


def _plain_container(container: nn.Module) -> Any:
    """Return a container of torch's own class with the same children."""
    own = own_class(container)
    plain = own.__new__(own)
    plain.__dict__.update(container.__dict__, _modules=OrderedDict(_own(container)))
    set_hosted(plain, None)
    return plain


def _renumber(container: nn.Module, children: nn.Module) -> None:
    """Take over `children`, and let each gate go with the child after which it acts."""
    hosted = hosted_by(container)
    gates = {n: c for n, c in container._modules.items() if isinstance(c, Attachment)}
    names = {id(child): name for name, child in children._modules.items()}
    if hosted is not None:
        for name, hook in hosted.hooks:
            if id(hook.host) not in names:
                side = "in front of" if name in hosted.inputs else "after"
                raise SiteError(
                    f"{name!r} of {type(container).__name__} cannot be taken out: the "
                    f"{gate_names(hook.attachments)} acts {side} it. Take that off "
                    f"first: attnlab.remove(network)."
                )
        hosted.outputs = {names[id(hook.host)]: hook for hook in hosted.outputs.values()}
        hosted.inputs = {names[id(hook.host)]: hook for hook in hosted.inputs.values()}
    container._modules = OrderedDict({**children._modules, **gates})
