"""Adapters of peft (LoRA, DoRA): what they add is a part of the layer that they wrap, and none of
the additions of its block.

So additions inside an adapter are not counted, by whoever counts: with adapters put in before
gates, after them, or merged in between, a block makes the additions that it was written with.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from torch import nn
from torch.utils.hooks import RemovableHandle

from attnlab.residuals.listing import list_modules


class _Depth(threading.local):
    """How many adapters run in this thread, one inside another."""

    value = 0


_depth = _Depth()


def inside_adapter() -> bool:
    """Return whether an adapter that was marked is running in this thread."""
    return _depth.value > 0


def is_adapter(module: nn.Module) -> bool:
    """Return whether `module` is a layer of peft that wraps another."""
    return _is_of_peft(type(module))  # type: ignore[arg-type]


@lru_cache(maxsize=1024)  # every recorded run asks it of every module
def _is_of_peft(own: type[nn.Module]) -> bool:
    return any(
        each.__name__ == "BaseTunerLayer" and each.__module__.startswith("peft.")
        for each in own.__mro__
    )


def _enter(module: nn.Module, arguments: object) -> None:
    del module, arguments
    _depth.value += 1


def _leave(module: nn.Module, arguments: object, output: object) -> None:
    del module, arguments, output
    _depth.value -= 1


def mark_adapters(network: nn.Module) -> list[RemovableHandle]:
    """Let all adapters of `network` say when they run; those that do already are left alone."""
    handles: list[RemovableHandle] = []
    if "peft" not in sys.modules:
        return handles
    for _, module in list_modules(network):
        if is_adapter(module) and _enter not in module._forward_pre_hooks.values():
            handles.append(module.register_forward_pre_hook(_enter))
            handles.append(module.register_forward_hook(_leave, always_call=True))
    return handles


@contextmanager
def marked_adapters(network: nn.Module) -> Iterator[None]:
    """Inside the `with` block, adapters of `network` are marked as by `mark_adapters`."""
    handles = mark_adapters(network)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
