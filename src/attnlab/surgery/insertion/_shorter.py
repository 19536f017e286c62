"""A network of Hugging Face without some of its layers, as the plain network of fewer layers that
it is: what its own `from_pretrained` can read."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from attnlab._errors import SiteError
from attnlab.residuals.classes import own_class
from attnlab.residuals.example import evaluating, example_input

_SAME = 1e-5
"""Relative change up to which two networks of the same weights answer alike."""


def shorter_network(network: nn.Module, replaced: Mapping[str, str]) -> nn.Module:
    """The plain network of as many layers as are left; an error where its architecture has no words
    for that, or where it would answer otherwise."""
    layers, gone = _layers(network, replaced)
    count = len(list(network.get_submodule(layers).children()))
    config: Any = copy.deepcopy(network.config)
    if getattr(config, "num_hidden_layers", None) != count:
        raise _refused(network, f"its configuration has no number for the {count} of {layers!r}")
    config.num_hidden_layers = count - len(gone)
    for name, value in vars(config).items():  # layer_types and its like
        if isinstance(value, list) and len(value) == count:
            setattr(config, name, [each for i, each in enumerate(value) if i not in gone])
    plain: nn.Module = own_class(network)(config)
    parameter = next(network.parameters())
    plain.to(parameter.device, parameter.dtype).train(network.training)
    try:
        plain.load_state_dict(_renumbered(network.state_dict(), layers, gone))
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise _refused(network, f"a network of fewer layers has other weights: {reason}") from error
    change = _change(network, plain)
    if not change <= _SAME:
        raise _refused(network, f"the network of fewer layers answers otherwise, by {change:.1e}")
    return plain


def _layers(network: nn.Module, replaced: Mapping[str, str]) -> tuple[str, set[int]]:
    """The list of layers, and the numbers of those that are gone."""
    lists = {name.rpartition(".")[0] for name in replaced}
    whole = all(
        re.fullmatch(r"identity(:\d)?", word) and name.rpartition(".")[2].isdigit()
        for name, word in replaced.items()
    )
    if not whole or len(lists) != 1:
        first = next(iter(replaced))
        raise _refused(network, f"{first!r} is only a part of a layer, or not one of a list")
    return lists.pop(), {int(name.rpartition(".")[2]) for name in replaced}


def _renumbered(state: Mapping[str, Tensor], layers: str, gone: set[int]) -> dict[str, Tensor]:
    found = {}
    for name, tensor in state.items():
        match = re.match(rf"{re.escape(layers)}\.(\d+)\.", name)
        if match is None:
            found[name] = tensor
            continue
        number = int(match[1])
        if number not in gone:
            before = sum(each < number for each in gone)
            found[f"{layers}.{number - before}.{name[match.end() :]}"] = tensor
    return found


def _change(network: nn.Module, plain: nn.Module) -> float:
    answers = []
    for each in (network, plain):
        with evaluating(each):
            if getattr(each, "main_input_name", "") == "pixel_values":
                output: Any = each(example_input(each))
            else:
                inputs: Any = getattr(each, "dummy_inputs", {})
                output = each(**inputs)
        answers.append(output[0].double())
    largest = answers[0].abs().max().item() or 1.0
    return float((answers[0] - answers[1]).abs().max().item() / largest)


def _refused(network: nn.Module, reason: str) -> SiteError:
    name = type(network).__name__
    return SiteError(
        f"save_pretrained would write a folder from which {name}.from_pretrained builds another "
        f"network, with the steps that were removed at random weights, and no plain {name} says "
        f"what this one is: {reason}. Remove whole layers, or save it with attnlab.save and a "
        f"description of the network."
    )
