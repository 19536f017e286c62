"""The gates of a network, ours and its own, and how to see their values while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from attnlab._errors import StepsNotFoundError
from attnlab.attention import ConvolutionalBlockAttention, InstanceEnhancementBatchNorm
from attnlab.fold._library import gate_submodule, own_places
from attnlab.insert import Attachment, attachments
from attnlab.insert._attachment import BranchAttachment
from attnlab.record.example import Example, run_once

Kind = Literal["inserted", "own", "norm"]

Observer = Callable[[int, Tensor], None]
"""Called with a gate's place in the list of sources and its value."""


@dataclass(frozen=True)
class Source:
    """One gate of a network."""

    label: str
    """`1.0`: stage and block."""
    name: str
    """Its module."""
    kind: Kind
    axis: int
    """The channel axis of its value."""


def find_gates(model: nn.Module, example: Example) -> tuple[list[Source], list[str]]:
    """The gates of `model`, and notes on those that cannot be watched."""
    sources = [
        Source(attachment.site.label, name, "inserted", attachment.site.channel_axis)
        for name, attachment in attachments(model)
    ]
    norms = [n for n, m in model.named_modules() if isinstance(m, InstanceEnhancementBatchNorm)]
    sources += [Source(name, name, "norm", 1) for name in norms]
    notes: list[str] = []
    if any(gate_submodule(module) is not None for module in model.modules()):
        for place in own_places(model, run_once(model, example).graph):
            if place.site.refusal:
                notes.append(f"{place.site.module} is left out: {place.site.refusal}.")
                continue
            site = place.site
            sources.append(Source(site.label, site.module, "own", site.channel_axis))
    if not sources:
        raise StepsNotFoundError(
            f"{type(model).__name__} has no gate to watch: no gate that attnlab inserted, and no "
            f"squeeze-and-excitation module of timm or torchvision. Insert one first, for example "
            f"attnlab.insert(model, 'se'), or on the command line --attention se."
        )
    return sources, notes


@contextmanager
def watching(
    model: nn.Module, sources: Sequence[Source], gate: Observer, spatial: Observer
) -> Iterator[None]:
    """Call `gate` with every gate's value while the network runs, and `spatial` with CBAM's spatial
    attention (B, 1, H, W). Nothing is left on the network afterwards, also after an error."""
    with ExitStack() as stack:
        for place, source in enumerate(sources):
            module = model.get_submodule(source.name)
            if isinstance(module, Attachment):
                # On the instance, in front of the method of its class.
                module.__dict__["step_size"] = _seen(module.step_size, place, gate)
                stack.callback(module.__dict__.pop, "step_size")
                last = _before_spatial_sigmoid(module)
                if last is not None:
                    stack.enter_context(last.register_forward_hook(_sigmoid(place, spatial)))
            elif isinstance(module, InstanceEnhancementBatchNorm):
                hook = _hook(place, gate, module.gate_scale)
                stack.enter_context(module.gate.register_forward_hook(hook))
            else:
                inner = gate_submodule(module)
                assert inner is not None
                stack.enter_context(inner.register_forward_hook(_hook(place, gate, None)))
        yield


def _before_spatial_sigmoid(attachment: Attachment) -> nn.Module | None:
    if not isinstance(attachment, BranchAttachment):
        return None
    inner = attachment.gate
    if not isinstance(inner, ConvolutionalBlockAttention):
        return None
    return inner.conv if inner.norm is None else inner.norm


def _seen(original: Callable[..., Tensor], place: int, gate: Observer) -> Callable[..., Tensor]:
    def step_size(branch: Tensor, shortcut: Tensor | None) -> Tensor:
        value = original(branch, shortcut)
        gate(place, value)
        return value

    return step_size


def _hook(place: int, gate: Observer, scale: Tensor | None) -> Callable[..., None]:
    def hook(module: nn.Module, arguments: Any, output: Tensor) -> None:
        del module, arguments
        gate(place, output if scale is None else output * scale)

    return hook


def _sigmoid(place: int, spatial: Observer) -> Callable[..., None]:
    def hook(module: nn.Module, arguments: Any, output: Tensor) -> None:
        del module, arguments
        spatial(place, torch.sigmoid(output))

    return hook
