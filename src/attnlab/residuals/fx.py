"""What torch.fx sees of a gated network: a gate is a module of its own in the graph.

Symbolic tracing runs no forward hooks of the modules that it records whole (convolutions, norms),
so the gates after them are recorded here. The traced graph calls the same module objects as the
network, with their hooks: a gate that its hook has applied already is handed on, not applied again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.fx import Proxy, Tracer

from attnlab._errors import SiteError

if TYPE_CHECKING:
    from attnlab.residuals.attachment import Attachment

_handed = threading.local()


def proxy_in(arguments: Iterable[object]) -> Proxy | None:
    """The first proxy of a symbolic trace among `arguments`, lists and dicts included."""
    for argument in arguments:
        if type(argument) is Tensor:  # nearly always, and quick
            continue
        if isinstance(argument, Proxy):
            return argument
        if isinstance(argument, list | tuple):
            found = proxy_in(argument)
        elif isinstance(argument, Mapping):
            found = proxy_in(argument.values())
        else:
            continue
        if found is not None:
            return found
    return None


def record_whole(
    module: nn.Module,
    proxy: Proxy,
    args: tuple[object, ...],
    kwargs: dict[str, object] | None = None,
) -> object:
    """A call of `module` as one node of the graph that is being traced."""
    tracer = proxy.tracer
    assert isinstance(tracer, Tracer)
    try:
        path = tracer.path_of_module(module)
    except NameError:
        raise SiteError(
            f"torch.fx traces a part of the network that a gate ({type(module).__name__}) is not "
            f"in. Trace the whole network."
        ) from None
    return tracer.create_proxy("call_module", path, args, kwargs or {})


def additions_error(owner: nn.Module) -> SiteError:
    """The module that torch.fx traces makes a gated addition itself."""
    return SiteError(
        f"{type(owner).__name__} has a gate at an addition of its own forward, which torch.fx "
        f"cannot show: a symbolic trace knows no shapes. torch.export.export(network, (images,))"
        f".module() is a graph with the gate in it. Where the gated addition is made by a module "
        f"inside the network, torch.fx records that module whole."
    )


def hand_over(attachments: Iterable[Attachment], output: Tensor) -> None:
    """Tell gates that a traced graph calls as well that `output` is gated already."""
    for attachment in attachments:
        _handed_over()[attachment] = output


def was_handed(attachment: Attachment, branch: Tensor) -> bool:
    """Return whether the hook of the gate has just gated `branch`."""
    given = _handed_over().pop(attachment, None)
    if given is None:
        return False
    if given is branch:
        return True
    if given.is_quantized and torch.equal(given.dequantize(), branch.dequantize()):
        return True  # a graph that torch quantised takes it back to float in between
    raise SiteError(
        f"The gate {attachment.name!r} acted after {attachment.site.module!r}, and a graph traced "
        f"by torch.fx calls it once more on something that was computed from it. Trace a network "
        f"without gates and insert into the result."
    )


def forget_handed(attachments: Iterable[Attachment]) -> None:
    """Do nothing: a traced graph does not see what the network itself ran."""
    for attachment in attachments:
        _handed_over().pop(attachment, None)


def _handed_over() -> dict[Attachment, Tensor]:
    found: dict[Attachment, Tensor] | None = getattr(_handed, "outputs", None)
    if found is None:
        found = _handed.outputs = {}
    return found
