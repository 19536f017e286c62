"""The reference: branches multiplied by zero by hooks, which know nothing of attnlab."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn


@contextmanager
def zeroed(network: nn.Module, ends: Sequence[str]) -> Iterator[None]:
    """The outputs of these modules, each the end of a branch, are multiplied by zero."""

    def hook(_module, _arguments, output):
        if isinstance(output, tuple):
            return (output[0] * 0, *output[1:])
        return output * 0

    with ExitStack() as hooks:
        for name in ends:
            module = network.get_submodule(name)
            hooks.enter_context(module.register_forward_hook(hook))
        yield


def answer(network: nn.Module, images: Tensor, ends: Sequence[str] = ()) -> Tensor:
    """In eval mode and float64, with these branches multiplied by zero."""
    exact = copy.deepcopy(network).double().eval()
    with zeroed(exact, ends), torch.no_grad():
        return exact(images.double())
