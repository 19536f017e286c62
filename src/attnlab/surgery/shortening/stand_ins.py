"""What takes the place of modules that have no work left once a step is gone.

A word says which, so that a file of weights can hold it: `identity` and `relu` for a whole block,
`identity` for a module of the step's branch, and `nothing` for the one at its end, whose result is
added. `identity:2` and `nothing:2` answer with a tuple of two where the module did, of which the
network reads the first, and `nothing:list` with a list of one. `zeros:96` are zeros with 96
channels on the last axis, where a module of the branch changed their number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from attnlab._errors import InputError, OptionError, ShortenError, WeightsError
from attnlab.surgery.insertion import attachments, mark_shortened, remove


class PassOn(nn.Identity):
    """Returns the first tensor that it is given, whatever comes with it."""

    def __init__(self, results: int = 0, in_list: bool = False) -> None:
        """Make it return a tuple of `results` values, or with 0 the tensor itself."""
        super().__init__()
        self.results = results
        self.in_list = in_list

    def forward(self, *given: object, **named: object) -> Any:
        return self._returned(first_tensor(given, named))

    def _returned(self, first: Tensor) -> object:
        if self.in_list:
            return [first]
        return (first, *[None] * (self.results - 1)) if self.results else first


class Nothing(PassOn):
    """Zeros, as many as it is given: what a step adds that is left out."""

    def __init__(self, results: int = 0, in_list: bool = False, channels: int = 0) -> None:
        super().__init__(results, in_list)
        self.channels = channels

    def forward(self, *given: object, **named: object) -> Any:
        first = first_tensor(given, named)
        if not self.channels:
            return self._returned(torch.zeros_like(first))
        return self._returned(first.new_zeros((*first.shape[:-1], self.channels)))


def first_tensor(given: tuple[object, ...], named: dict[str, object]) -> Tensor:
    """The first tensor among the arguments of a call."""
    for value in (*given, *named.values()):
        if isinstance(value, Tensor):
            return value
    raise InputError("A module that a removed step left was called without a tensor.")


_FORM = re.compile(r"relu|(identity|nothing)(?::([1-9]|list))?|zeros:([1-9][0-9]*)")


def stand_in_for(word: str) -> nn.Module:
    """The module that `word` names."""
    match = _FORM.fullmatch(word)
    if match is None:
        raise OptionError(
            f"Expected what takes a module's place to be relu, identity or nothing, identity:N or "
            f"nothing:N for N results (identity:list, nothing:list for a list of one), or zeros:N "
            f"for zeros with N channels, but got {word!r}."
        )
    if word == "relu":
        return nn.ReLU()
    if match[3]:
        return Nothing(channels=int(match[3]))
    in_list = match[2] == "list"
    results = 0 if in_list else int(match[2] or 0)
    return (Nothing if match[1] == "nothing" else PassOn)(results, in_list)


def take_out(network: nn.Module, replaced: Mapping[str, str]) -> None:
    """Put stand-ins into `network` itself: `replaced` has a word for each module's name. Norms with
    a gate inside (IEBN) that are gone then are no longer looked for."""
    if not replaced:
        return
    for name, word in replaced.items():
        try:
            old = network.get_submodule(name)
        except AttributeError:
            raise WeightsError(
                f"{type(network).__name__} has no module {name!r} that could be taken out."
            ) from None
        new = stand_in_for(word).train(old.training)
        _answer_as(new, old)
        for module in list(network.modules()):
            for attribute, child in list(module._modules.items()):
                if child is old:  # a network may have it under several names
                    setattr(module, attribute, new)
    here = [name for name, _ in attachments(network)]
    remove(network, only_lost=True)
    if here != [name for name, _ in attachments(network)]:
        raise ShortenError(
            f"Taking {', '.join(replaced)} out would take gates off other steps as well. Remove "
            f"the gates first (attnlab.remove), or fold them (attnlab.fold)."
        )
    mark_shortened(network, replaced)


def _answer_as(new: nn.Module, old: nn.Module) -> None:
    """Let the stand-in answer what the network's own code asks of a layer that it does not call:
    its kind (`block.block_type`), and the type of its weight (`norm.weight.dtype`)."""
    for name, value in vars(old).items():
        if isinstance(value, str | int | float) and name not in vars(new):
            setattr(new, name, value)
    weight = getattr(old, "weight", None)
    if isinstance(weight, Tensor):
        new.register_buffer("weight", weight.detach().new_empty(0), persistent=False)


def outermost(replaced: Mapping[str, str]) -> dict[str, str]:
    """Without modules that lie in another one that is taken out."""
    return {
        name: word
        for name, word in replaced.items()
        if not any(name.startswith(f"{other}.") for other in replaced)
    }
