"""Changes of networks, called inside `torch.inference_mode()`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")


def making_ordinary_tensors(change: Callable[_Given, _Made]) -> Callable[_Given, _Made]:
    """Let `change` make networks that can be trained, wherever it is called.

    A tensor that is made in `torch.inference_mode()` stays one that autograd refuses: a network
    that was changed there ran, and failed at its first loss.
    """

    @functools.wraps(change)
    def changed(*args: _Given.args, **kwargs: _Given.kwargs) -> _Made:
        if not torch.is_inference_mode_enabled():
            return change(*args, **kwargs)
        with torch.inference_mode(mode=False), torch.no_grad():
            return change(*args, **kwargs)

    return changed
