"""The gates of one network in another one of the same blocks; `load()` with gates.

A network without gates takes those of the weights that it loads, then weights are copied by name.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from attnlab._errors import InputError
from attnlab.gates import InstanceEnhancementBatchNorm
from attnlab.residuals import Attachment
from attnlab.surgery.insertion import attachments
from attnlab.surgery.insertion.host import hang

if TYPE_CHECKING:
    from ultralytics.nn.tasks import BaseModel


def gates_of(network: object) -> dict[str, Attachment]:
    """Return the gates of a network by name; none if it is not a network but the path to one."""
    return dict(attachments(network)) if isinstance(network, nn.Module) else {}


def transplant(source: nn.Module, target: BaseModel) -> None:
    """Put copies of the gates of `source` into `target`."""
    copied = copy.deepcopy(list(gates_of(source).values()))  # once: stages share a gate
    _attach_all(copied, target)
    if hasattr(source, "attention"):
        target.attention = source.attention


def transplant_anew(source: BaseModel, target: BaseModel) -> None:
    """Put the gates of `source` into `target` with the values that they had at insertion."""
    found = gates_of(source)
    start = source.attention.start if hasattr(source, "attention") else {}
    unknown = sorted(found.keys() - start.keys())
    if unknown:
        raise InputError(
            f"This training begins without the weights of its network, and with which values the "
            f"gate {unknown[0]!r} began is not known: it was not put in by with_attention, or by "
            f"an older version. Put gates into a network without any: "
            f'with_attention(YOLO("yolo11n.yaml"), …).'
        )
    copied = copy.deepcopy(list(found.values()))
    for name, gate in zip(found, copied, strict=True):
        gate.load_state_dict(dict(start[name]))
    _attach_all(copied, target)
    target.attention = source.attention


def start_of(network: nn.Module) -> dict[str, dict[str, Tensor]]:
    """The tensors of each gate as they are now, by the gate's name."""
    return {
        name: {key: value.detach().cpu().clone() for key, value in gate.state_dict().items()}
        for name, gate in attachments(network)
    }


def check_same_gates(one: object, other: object) -> None:
    """Refuse two networks that both have gates, but not the same ones."""
    first, second = gates_of(one), gates_of(other)
    only = sorted(first.keys() - second.keys()) or sorted(second.keys() - first.keys())
    if only:
        raise InputError(
            f"The weights and the network have different gates: {only[0]!r} is in one of them "
            f"only. Load them into a network without gates, which takes theirs."
        )
    for name, gate in first.items():
        kinds = [type(each.gate_module).__name__ for each in (gate, second[name])]
        shapes = [
            {key: value.shape for key, value in each.state_dict().items()}
            for each in (gate, second[name])
        ]
        if kinds[0] != kinds[1] or shapes[0] != shapes[1]:
            differ = "of another size" if kinds[0] == kinds[1] else f"{kinds[0]} and {kinds[1]}"
            raise InputError(
                f"The weights and the network have different gates: {name!r} is {differ}. Load "
                f"them into a network without gates, which takes theirs."
            )


def norms_with_gates(network: nn.Module) -> list[str]:
    """The norms with a gate inside (IEBN), those in gates left out."""
    inside = tuple(f"{name}." for name in gates_of(network))
    return [
        name
        for name, module in network.named_modules()
        if isinstance(module, InstanceEnhancementBatchNorm) and not name.startswith(inside)
    ]


def _attach_all(gates: list[Attachment], target: nn.Module) -> None:
    missing = [gate.site.module for gate in gates if not _has(target, gate.site.module)]
    if missing:
        raise InputError(
            f"The weights have {len(gates)} gates, and the network that they are loaded into has "
            f"no {missing[0]!r}, after which one of them acts: it is another "
            f"architecture. Train the one that the gates were put into, or load weights without "
            f"gates."
        )
    for gate in gates:
        parameter = next(target.parameters())
        hang(target, gate.to(parameter.device, parameter.dtype))


def _has(network: nn.Module, name: str) -> bool:
    try:
        network.get_submodule(name)
    except AttributeError:
        return False
    return True


_SIZE = 64
"""Pixels of the example: the smallest that the strides of these networks divide evenly twice."""


def example_for(network: torch.nn.Module) -> torch.Tensor:
    """Return an image of noise, the same each time."""
    channels = int(getattr(network, "yaml", {}).get("channels", 3))
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(1, channels, _SIZE, _SIZE, generator=generator)
    parameter = next(network.parameters())
    return images.to(parameter.device, parameter.dtype)


def loads(load: Callable[..., object]) -> Callable[..., object]:
    """Return their `BaseModel.load`, with gates."""

    @wraps(load)
    def load_with_gates(
        self: BaseModel, weights: nn.Module | dict[str, object], verbose: bool = True
    ) -> object:
        found = (weights.get("ema") or weights["model"]) if isinstance(weights, dict) else weights
        if isinstance(found, nn.Module):
            check_norms(found)
            if gates_of(found) and gates_of(self):
                check_same_gates(found, self)
            elif gates_of(found):
                transplant(found, self)
        return load(self, weights, verbose)

    load_with_gates.keeps_gates = True  # type: ignore[attr-defined]
    return load_with_gates


def check_norms(network: nn.Module) -> None:
    """Refuse norms with a gate inside: a trainer builds plain ones, a validation fuses them."""
    norms = norms_with_gates(network)
    if norms:
        raise InputError(
            f"The norm {norms[0]!r} has a gate inside (iebn), and Ultralytics fuses norms into the "
            f"convolutions before them in every validation. Choose 'ie', the same gate after a "
            f"layer."
        )
