"""torch.jit.script of a gated network: a copy of it in which gates are layers of their own."""

from __future__ import annotations

import copy
import inspect

import torch
from torch import Tensor, nn

from attnlab._errors import SiteError
from attnlab.gates import InstanceEnhancementBatchNorm
from attnlab.residuals.attachment import Attachment
from attnlab.surgery.insertion._hosted import hosted_by

_INSTEAD = (
    "torch.export.export(network, (images,)) and torch.jit.trace(network, images) take every gate; "
    "constant gates can be folded first: attnlab.fold(network)."
)


class _Constant(nn.Module):
    """A gate that is the same for every input."""

    def __init__(self, attachment: Attachment, constant: Tensor, like: Tensor) -> None:
        super().__init__()
        sizes = [1] * len(attachment.site.shape)
        sizes[attachment.site.channel_axis] = -1
        self.values: Tensor
        self.register_buffer("values", constant.to(like).reshape(sizes))

    def forward(self, branch: Tensor) -> Tensor:
        return branch * self.values


class _Scripted(nn.Module):
    """A gate whose class torch.jit can read."""

    def __init__(self, gate: nn.Module, scale: Tensor | None) -> None:
        super().__init__()
        self.gate = gate
        self.scale: Tensor  # not on the class: torch.jit cannot read annotations there
        self.register_buffer("scale", torch.ones(()) if scale is None else scale)

    def forward(self, branch: Tensor) -> Tensor:
        return branch * self.gate(branch) * self.scale


def scriptable(network: nn.Module) -> nn.Module:
    """A copy of `network` for torch.jit.script, which reads source and runs no hooks."""
    hosted = hosted_by(network)
    if hosted is None or hosted.guard is None or not _asked_for():
        # Torch would write the copy into the network that it was asked to script.
        raise SiteError(
            f"torch.jit.script reached {type(network).__name__}, which carries gates, as a part of "
            f"another network. Script the network that gates were inserted into. {_INSTEAD}"
        )
    from attnlab.surgery.insertion.host import remove_attachments

    copied = copy.deepcopy(network)
    layers: list[tuple[nn.Module, str, list[nn.Module]]] = []
    for path, module in copied.named_modules():
        if isinstance(module, InstanceEnhancementBatchNorm):
            raise SiteError(
                f"torch.jit.script cannot compile the norm {path!r}, which has a gate inside "
                f"(iebn). {_INSTEAD}"
            )
        carried = hosted_by(module)
        if carried is not None and carried.additions:
            raise SiteError(
                f"torch.jit.script cannot compile the gate "
                f"{carried.additions[0].attachments[0].name!r}, which acts at an addition inside "
                f"the forward of {type(module).__name__}. {_INSTEAD}"
            )
        if carried is not None and carried.inputs:
            hook = next(iter(carried.inputs.values()))
            raise SiteError(
                f"torch.jit.script cannot compile the gate {hook.attachments[0].name!r}, which "
                f"acts {hook.attachments[0].site.at}. {_INSTEAD}"
            )
        for name, hook in carried.outputs.items() if carried is not None else ():
            layers.append((module, name, [_layer(gate, hook.host) for gate in hook.attachments]))
    remove_attachments(copied)
    for module, name, gates in layers:
        setattr(module, name, nn.Sequential(module.get_submodule(name), *gates))
    return copied


def _asked_for() -> bool:
    """Whether torch.jit.script was called with this network, not with one that contains it."""
    frame = inspect.currentframe()
    for _ in range(3):  # scriptable, __prepare_scriptable__, and torch's function that calls it
        frame = frame.f_back if frame is not None else None
    return frame is not None and not frame.f_locals.get("memo")


def _layer(attachment: Attachment, host: nn.Module) -> nn.Module:
    constant = attachment.constant()
    if constant is not None:
        like = next((p for p in (*attachment.parameters(), *host.parameters())), torch.empty(0))
        return _Constant(attachment, constant, like)
    gate = attachment.gate_module
    channel_first = len(attachment.site.shape) == 4 and attachment.site.channel_axis == 1
    try:
        if not channel_first:
            raise ValueError(f"its maps have shape {attachment.site.shape}")
        return _Scripted(torch.jit.script(gate), attachment.scale)
    except Exception as error:  # torch.jit has no class of its own for what it cannot read
        reason = str(error).strip().splitlines()[0]
        raise SiteError(
            f"torch.jit.script cannot compile the gate {attachment.name!r} "
            f"({type(gate).__name__}): {reason} {_INSTEAD}"
        ) from error
