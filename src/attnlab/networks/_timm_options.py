"""Options that timm would ignore in silence.

Most of timm's constructors refuse a keyword that they do not know. Some take any and ignore the
rest (Swin, HRNet, VoVNet, ...), so that a typing error changes nothing and says nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import get_args

import torch
from torch import nn

from attnlab._errors import OptionError, nearest


def refuse_swallowed_options(
    what: str, build: Callable[..., nn.Module], network: nn.Module, options: Mapping[str, object]
) -> None:
    """Raise `OptionError` if `build(**options)` gave `network` without a use for one of them."""
    parameters = inspect.signature(type(network).__init__).parameters.values()
    if all(parameter.kind is not inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return
    known = set(_keywords(type(network)))
    strange = [name for name in options if name not in known]
    if not strange:
        return
    # Others pass such keywords on to where they have a meaning. Those refuse nonsense.
    probe = {name: value for name, value in options.items() if name in known}
    try:
        with torch.device("meta"):
            build(**probe, no_such_option=0)
    except TypeError:
        return
    raise OptionError(f"{what} has no option {strange[0]!r}.{nearest(strange[0], sorted(known))}")


def _keywords(network_type: type[nn.Module]) -> Iterator[str]:
    """What timm's functions and the constructors of `network_type` and its bases take by name.

    A constructor that takes a configuration (a dataclass) also takes its fields.
    """
    import timm
    from timm.models import build_model_with_cfg

    yield from ("features_only", "out_indices")
    for function in (timm.create_model, build_model_with_cfg):
        yield from inspect.signature(function).parameters
    for base in network_type.__mro__:
        if not issubclass(base, nn.Module):
            continue
        for parameter in inspect.signature(base.__init__).parameters.values():
            yield parameter.name
            for choice in (parameter.annotation, *get_args(parameter.annotation)):
                if is_dataclass(choice):
                    yield from (entry.name for entry in fields(choice))
