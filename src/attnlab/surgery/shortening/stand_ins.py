"""What takes the place of modules that have no work left once a step is gone.

A word says which, so that a file of weights can hold it: `identity` and `relu` for a whole block,
`identity` for a module of the step's branch, and `nothing` for the one at its end, whose result is
added. `identity:2` and `nothing:2` answer with two values where the module did, of which the
network reads the first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from attnlab._errors import OptionError, ShortenError, WeightsError
from attnlab.surgery.insertion import attachments, mark_shortened, remove


class PassOn(nn.Identity):
    """Returns the first thing that it is given, whatever comes with it."""

    def __init__(self, results: int = 1) -> None:
        super().__init__()
        self.results = results

    def forward(self, *given: Any, **named: Any) -> Any:
        first = given[0] if given else next(iter(named.values()))
        return _several(first, self.results)


class Nothing(nn.Module):
    """Zeros, as many as it is given: what a step adds that is left out."""

    def __init__(self, results: int = 1) -> None:
        super().__init__()
        self.results = results

    def forward(self, *given: Any, **named: Any) -> Any:
        zeros = torch.zeros_like(given[0] if given else next(iter(named.values())))
        return _several(zeros, self.results)


def _several(first: Any, results: int) -> Any:
    return first if results == 1 else (first, *[None] * (results - 1))


_FORM = re.compile(r"relu|(identity|nothing)(?::([2-9]))?")


def stand_in_for(word: str) -> nn.Module:
    """The module that `word` names."""
    match = _FORM.fullmatch(word)
    if match is None:
        raise OptionError(
            f"Expected what takes a module's place to be relu, identity or nothing, or identity:N "
            f"or nothing:N for N results, but got {word!r}."
        )
    if word == "relu":
        return nn.ReLU()
    results = int(match[2] or 1)
    return Nothing(results) if match[1] == "nothing" else PassOn(results)


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


def outermost(replaced: Mapping[str, str]) -> dict[str, str]:
    """Without modules that lie in another one that is taken out."""
    return {
        name: word
        for name, word in replaced.items()
        if not any(name.startswith(f"{other}.") for other in replaced)
    }
